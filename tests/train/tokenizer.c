/* tokenizer.json: what is read, what is refused and by which sentence, and files that are broken on purpose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tokenizer.h"
#include "tokenizer_parts.h"

static char path[64];
static train_error error;

/* The parts of a file; NULL: as in `good`. */
typedef struct parts {
  const char *added, *normalizer, *pre_tokenizer, *decoder, *processor, *type, *more_vocab, *merges, *more_model;
} parts;

static const parts good = {
    .added =
        "[{\"id\":300,\"content\":\"<end>\",\"special\":true,\"normalized\":false},{\"id\":301,\"content\":\"zz\"}]",
    .normalizer = "null",
    .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
    .decoder = "{\"type\":\"ByteLevel\"}",
    .processor = "null",
    .type = "\"BPE\"",
    .more_vocab = ",\"th\":256,\"the\":257,\"aa\":258",
    .merges = "[\"t h\",[\"th\",\"e\"],\"a a\"]",
    .more_model = ""};

static const char *or_good(const char *part, const char *otherwise) { return part ? part : otherwise; }

static char *text_of(const parts *p) {
  char letters[8192] = "", *text = NULL;
  size_t used = 0;
  for (int b = 0; b < 256; ++b) {
    char letter[2];
    const int count = train_byte_letter((uint8_t)b, letter);
    used += (size_t)sprintf(letters + used, "%s\"%s%.*s\":%d", b ? "," : "", b == '"' || b == '\\' ? "\\" : "", count,
                            letter, b);
  }
  const int bytes =
      asprintf(&text,
               "{\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,\"post_processor\":%s,"
               "\"model\":{\"type\":%s,\"vocab\":{%s%s},\"merges\":%s%s}}",
               or_good(p->added, good.added), or_good(p->normalizer, good.normalizer),
               or_good(p->pre_tokenizer, good.pre_tokenizer), or_good(p->decoder, good.decoder),
               or_good(p->processor, good.processor), or_good(p->type, good.type), letters,
               or_good(p->more_vocab, good.more_vocab), or_good(p->merges, good.merges),
               or_good(p->more_model, good.more_model));
  assert_true(bytes > 0);
  return text;
}

static train_tokenizer *open_text(const char *text, size_t bytes) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
  error = (train_error){0};
  return train_tokenizer_open(path, &error);
}

static train_tokenizer *open_parts(const parts *p) {
  char *text = text_of(p);
  train_tokenizer *t = open_text(text, strlen(text));
  free(text);
  return t;
}

static void expect(train_tokenizer *t, const char *text, bool begin, const int32_t *wanted, int64_t count) {
  train_tokens tokens = {0};
  if (!t || !train_tokenizer_encode(t, (const uint8_t *)text, strlen(text), begin, &tokens, &error))
    fail_msg("\"%s\": %s", text, error.text);
  assert_int_equal(tokens.count, count);
  if (count) assert_memory_equal(tokens.tokens, wanted, (size_t)count * sizeof *wanted);
  free(tokens.tokens);
}

#define EXPECT(t, text, begin, ...)                                 \
  do {                                                              \
    const int32_t wanted[] = {__VA_ARGS__};                         \
    expect(t, text, begin, wanted, sizeof wanted / sizeof *wanted); \
  } while (0)

static void reads(void **state) {
  (void)state;
  size_t bytes = 0;
  train_tokenizer *t = open_parts(&(parts){0});
  EXPECT(t, "the", false, 257);
  EXPECT(t, "tthee the", false, 't', 257, 'e', ' ', 257);
  EXPECT(t, "aaaaa", false, 258, 258, 'a');
  EXPECT(t, "zzz<end>\xc3\xa9", true, 301, 'z', 300, 0xc3, 0xa9);
  expect(t, "", true, NULL, 0);
  assert_int_equal(train_tokenizer_vocab(t), 302);
  assert_memory_equal(train_tokenizer_text(t, 257, &bytes), "the", 3);
  assert_int_equal(*train_tokenizer_text(t, 0xc3, &bytes), 0xc3);
  const int32_t none[] = {300, 299, 302, -1, INT32_MAX}; /* special, a gap, outside */
  for (size_t i = 0; i < sizeof none / sizeof *none; ++i) {
    assert_null(train_tokenizer_text(t, none[i], &bytes));
    assert_int_equal(bytes, 0);
  }
  train_tokens tokens = {0};
  assert_false(train_tokenizer_encode(t, (const uint8_t *)"ab\xff", 3, false, &tokens, &error));
  assert_string_equal(error.text, "the text is not UTF-8: byte 0xff at 2");
  free(tokens.tokens);
  train_tokenizer_close(t);

  t = open_parts(&(parts){
      .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}",
      .processor =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<end>\"}},{\"Sequence\":{\"id\":"
          "\"A\"}},{\"SpecialToken\":{\"id\":\"<end>\"}}],\"special_tokens\":{\"<end>\":{\"ids\":[300]}}}"});
  EXPECT(t, "e\xcc\x81", true, 300, 0xc3, 0xa9);
  EXPECT(t, "e\xcc\x81", false, 0xc3, 0xa9);
  train_tokenizer_close(t);
}

/* A byte that the vocabulary lacks becomes the unknown token, or an error. */
static void missing_bytes(void **state) {
  (void)state;
  static const char with[] =
      "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\","
      "\"vocab\":{\"a\":0,\"u\":1,\"\xc4\xa0\":2},\"merges\":[]}}";
  static const char without[] =
      "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
  train_tokens tokens = {0};
  train_tokenizer *t = open_text(with, sizeof with - 1);
  EXPECT(t, "ab", false, 2, 0, 1);
  train_tokenizer_close(t);
  t = open_text(without, sizeof without - 1);
  assert_false(train_tokenizer_encode(t, (const uint8_t *)"b", 1, false, &tokens, &error));
  assert_string_equal(error.text, "the tokenizer has no token for the byte 0x20, and none for what is unknown");
  train_tokenizer_close(t);
}

static void refuses(void **state) {
  (void)state;
  static const struct {
    parts parts;
    const char *says;
  } cases[] = {
      {{.type = "\"Unigram\""}, "its model is \"Unigram\", must be \"BPE\""},
      {{.type = "\"WordPiece\""}, "its model is \"WordPiece\", must be \"BPE\""},
      {{.type = "[7]"}, "its model is \"\", must be \"BPE\""},
      {{.merges = "null"}, "model.merges must be a list"},
      {{.merges = "{}"}, "model.merges must be a list"},
      {{.merges = "[\"th\"]"}, "merge 0 is not two texts"},
      {{.merges = "[\"t h\",\"th e x\"]"}, "merge 1 is not two texts"},
      {{.merges = "[[\"t\"]]"}, "merge 0 is not two texts"},
      {{.merges = "[[\"\",\"a\"]]"}, "merge 0 is not two texts"},
      {{.merges = "[7]"}, "merge 0 is not two texts"},
      {{.merges = "[\"x y\"]"}, "merge 0 joins \"x y\" and \"y\", of which a part or the whole is no token"},
      {{.more_vocab = ",\"th\":3"}, "two tokens have the number 3"},
      {{.more_vocab = ",\"th\":-1"}, "the token \"th\" must have a whole number from 0 to 16777215"},
      {{.more_vocab = ",\"th\":16777216"}, "the token \"th\" must have a whole number"},
      {{.more_vocab = ",\"th\":1e3"}, "the token \"th\" must have a whole number"},
      {{.more_vocab = ",\"th\":99999999999999999999999"}, "its JSON is broken in line 1"},
      {{.more_vocab = ",\"th\":[]"}, "the token \"th\" must have a whole number"},
      {{.more_vocab = ",\"\":256"}, "a token is empty"},
      {{.more_vocab = ",\"th\":256,\"th\":257"}, "its JSON is broken"},
      {{.more_model = ",\"byte_fallback\":true"}, "model.byte_fallback is not supported"},
      {{.more_model = ",\"dropout\":0.1"}, "model.dropout is not supported"},
      {{.more_model = ",\"end_of_word_suffix\":\"</w>\""}, "end_of_word_suffix are not supported"},
      {{.added = "{}"}, "added_tokens must be a list"},
      {{.added = "[7]"}, "the token \"\" must have a whole number"},
      {{.added = "[{\"id\":300,\"content\":\"\"}]"}, "an added token is empty"},
      {{.added = "[{\"id\":300,\"content\":\"x\",\"single_word\":true}]"}, "\"x\" is single_word"},
      {{.normalizer = "{\"type\":\"Lowercase\"}"}, "the normalizer Lowercase is not supported"},
      {{.normalizer = "[]"}, "normalizer must be an object with a type"},
      {{.pre_tokenizer = "null"}, "its pre_tokenizer has no ByteLevel"},
      {{.pre_tokenizer = "{\"type\":\"Metaspace\"}"}, "the pre-tokenizer Metaspace is not supported"},
      {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":7}"}, "must have a list of pretokenizers"},
      {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\"}"},
       "must be a Regex or a String"},
      {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"MergedWithNext\"}"},
       "the behavior MergedWithNext of a Split is not supported"},
      {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"}"},
       "the pattern \"(a\" is not understood: missing closing parenthesis"},
      {{.decoder = "{\"type\":\"WordPiece\"}"}, "the decoder WordPiece is not supported"},
      {{.processor = "{\"type\":\"RobertaProcessing\"}"}, "the post-processor RobertaProcessing is not supported"},
      {{.processor =
            "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"e\"}}],\"special_tokens\":{"
            "\"e\":{\"ids\":[302]}}}"},
       "the special token \"e\" of its template is none of its tokens"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (open_parts(&cases[i].parts)) fail_msg("accepted: %s", cases[i].says);
    if (!strstr(error.text, cases[i].says)) fail_msg("\"%s\" lacks \"%s\"", error.text, cases[i].says);
    assert_int_equal(error.exit_code, TRAIN_EXIT_TROUBLE);
  }
}

/* Merges cannot run in circles: each makes a longer token. A pair given twice has the later rank, as in `tokenizers'. */
static void merges_in_circles(void **state) {
  (void)state;
  train_tokenizer *t = open_parts(&(parts){.more_vocab = ",\"ab\":256,\"ba\":257,\"aba\":258,\"bab\":259",
                                           .merges = "[\"a b\",\"b a\",\"ab a\",\"a ba\",\"b ab\",\"ba b\",\"a b\"]"});
  EXPECT(t, "abab", false, 258, 'b');
  train_tokenizer_close(t);
}

/* Cut anywhere, or with any byte changed, a file is read or refused, and nothing else happens. */
static void broken_files(void **state) {
  (void)state;
  char *text = text_of(&good);
  const size_t bytes = strlen(text);
  for (size_t cut = 0; cut < bytes; cut += cut < 40 ? 1 : 37) {
    if (open_text(text, cut)) fail_msg("accepted, cut to %zu", cut);
    assert_non_null(strstr(error.text, "its JSON is broken"));
  }
  for (size_t at = 0; at < bytes; at += 5) {
    const char kept = text[at];
    text[at] = at % 2 ? '[' : '\xff';
    train_tokenizer *t = open_text(text, bytes);
    train_tokens tokens = {0};
    if (t) train_tokenizer_encode(t, (const uint8_t *)"the aa<end>", 11, true, &tokens, &error);
    free(tokens.tokens);
    train_tokenizer_close(t);
    text[at] = kept;
  }
  free(text);
  char *deep = malloc(200001);
  memset(deep, '[', 200000);
  assert_null(open_text(deep, 200000));
  free(deep);
}

/* A pattern that tries without end is ended by PCRE2's limit. */
static void endless_pattern(void **state) {
  (void)state;
  char text[64];
  train_tokens tokens = {0};
  train_tokenizer *t = open_parts(&(parts){
      .pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
                       "\"Regex\":\"(a|aa|aaa)+(?=c|d)\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\"}]}"});
  assert_non_null(t);
  memset(text, 'a', sizeof text);
  assert_false(train_tokenizer_encode(t, (const uint8_t *)text, sizeof text, false, &tokens, &error));
  assert_non_null(strstr(error.text, "the tokenizer's pattern failed on the text: match limit exceeded"));
  free(tokens.tokens);
  train_tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads),        cmocka_unit_test(missing_bytes),
                                     cmocka_unit_test(refuses),      cmocka_unit_test(merges_in_circles),
                                     cmocka_unit_test(broken_files), cmocka_unit_test(endless_pattern)};
  snprintf(path, sizeof path, "/tmp/tigon-tokenizer-%ld.json", (long)getpid());
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(path);
  return failed;
}
