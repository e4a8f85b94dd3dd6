#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "json_memory.h"
#include "tokenizer_parts.h"

/* Pieces of GPT-2, which ByteLevel has when use_regex is true. */
static const char gpt2[] = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct reading {
  train_tokenizer *t;
  train_error *error;
} reading;

__attribute__((format(printf, 2, 3))) static bool wrong(const reading *r, const char *format, ...) {
  char what[600];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  return train_fail(r->error, TRAIN_EXIT_TROUBLE, "%.300s is no usable tokenizer: %s", r->t->path, what);
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static bool is_true(const json_t *object, const char *key, bool otherwise) {
  const json_t *value = json_object_get(object, key);
  return value ? json_is_true(value) : otherwise;
}

static bool is_empty(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return !value || json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0);
}

/* ---- letters of bytes: OpenAI's bytes_to_unicode ---- */

static int letter_of(int byte) {
  if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173)) return byte;
  return 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

int train_byte_letter(uint8_t byte, char to[2]) {
  const int letter = letter_of(byte);
  if (letter < 0x80) {
    to[0] = (char)letter;
    return 1;
  }
  to[0] = (char)(0xc0 | letter >> 6);
  to[1] = (char)(0x80 | (letter & 0x3f));
  return 2;
}

/* The bytes that letters stand for; where one stands for none, the text itself. Returns their number. */
static int32_t bytes_of(const char *letters, size_t count, const int16_t byte_of[324], uint8_t *to) {
  int32_t used = 0;
  for (size_t i = 0; i < count;) {
    utf8proc_int32_t c = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate((const utf8proc_uint8_t *)letters + i, (utf8proc_ssize_t)(count - i), &c);
    if (length <= 0 || c >= 324 || byte_of[c] < 0) {
      memcpy(to, letters, count);
      return (int32_t)count;
    }
    to[used++] = (uint8_t)byte_of[c];
    i += (size_t)length;
  }
  return used;
}

/* ---- tokens ---- */

static bool read_token(const reading *r, const char *text, const json_t *number, int32_t *token) {
  const json_int_t value = json_integer_value(number);
  if (!json_is_integer(number) || value < 0 || value >= TRAIN_LARGEST_VOCAB)
    return wrong(r, "the token \"%.60s\" must have a whole number from 0 to %d", text, TRAIN_LARGEST_VOCAB - 1);
  *token = (int32_t)value;
  return true;
}

/* The largest token + 1, and the bytes of all texts. */
static bool measure(const reading *r, json_t *vocab, const json_t *added, size_t *bytes) {
  const char *text;
  json_t *number;
  size_t i;
  json_object_foreach(vocab, text, number) {
    int32_t token = 0;
    if (!read_token(r, text, number, &token)) return false;
    *bytes += strlen(text);
    if (token >= r->t->vocab) r->t->vocab = token + 1;
  }
  json_array_foreach(added, i, number) {
    int32_t token = 0;
    if (!read_token(r, text_of(number, "content"), json_object_get(number, "id"), &token)) return false;
    *bytes += strlen(text_of(number, "content"));
    if (token >= r->t->vocab) r->t->vocab = token + 1;
  }
  return r->t->vocab > 0 || wrong(r, "it has no tokens");
}

static bool read_vocab(const reading *r, json_t *vocab, const json_t *added, int64_t *used) {
  train_tokenizer *t = r->t;
  size_t bytes = 0;
  int16_t byte_of[324];
  const char *text;
  json_t *number;
  if (!measure(r, vocab, added, &bytes)) return false;
  t->spellings = calloc((size_t)t->vocab, sizeof *t->spellings);
  t->bytes = malloc(bytes + 1);
  if (!t->spellings || !t->bytes) return train_fail(r->error, TRAIN_EXIT_TROUBLE, "no memory for the tokenizer");
  for (int i = 0; i < 324; ++i) byte_of[i] = -1;
  for (int b = 0; b < 256; ++b) byte_of[letter_of(b)] = (int16_t)b;
  json_object_foreach(vocab, text, number) {
    const int32_t token = (int32_t)json_integer_value(number);
    train_spelling *s = &t->spellings[token];
    if (s->count > 0) return wrong(r, "two tokens have the number %" PRId32, token);
    if (!*text) return wrong(r, "a token is empty");
    *s = (train_spelling){*used, bytes_of(text, strlen(text), byte_of, t->bytes + *used)};
    *used += s->count;
  }
  return true;
}

static int by_text(const void *a, const void *b) {
  const train_added *x = a, *y = b;
  const uint8_t first = (uint8_t)x->text[0], second = (uint8_t)y->text[0];
  if (first != second) return first < second ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return memcmp(x->text, y->text, x->bytes);
}

static bool read_added(const reading *r, const json_t *list, int64_t *used) {
  train_tokenizer *t = r->t;
  size_t i;
  json_t *object;
  t->added = calloc(json_array_size(list) + 1, sizeof *t->added);
  if (!t->added) return train_fail(r->error, TRAIN_EXIT_TROUBLE, "no memory for the tokenizer");
  json_array_foreach(list, i, object) {
    const char *text = text_of(object, "content");
    const size_t bytes = strlen(text);
    const int32_t token = (int32_t)json_integer_value(json_object_get(object, "id"));
    if (bytes == 0) return wrong(r, "an added token is empty");
    if (is_true(object, "single_word", false))
      return wrong(r, "the added token \"%.60s\" is single_word, which is not supported", text);
    t->added[t->added_count++] = (train_added){.text = text,
                                               .bytes = bytes,
                                               .token = token,
                                               .eats_before = is_true(object, "lstrip", false),
                                               .eats_behind = is_true(object, "rstrip", false),
                                               .normalized = is_true(object, "normalized", true)};
    const bool special = is_true(object, "special", false);
    memcpy(t->bytes + *used, text, bytes);
    t->spellings[token] = (train_spelling){*used, special ? 0 : (int32_t)bytes};
    *used += (int64_t)bytes;
  }
  qsort(t->added, (size_t)t->added_count, sizeof *t->added, by_text);
  int64_t next = 0;
  for (int b = 0; b <= 256; ++b) {
    while (next < t->added_count && (uint8_t)t->added[next].text[0] < b) ++next;
    t->added_from[b] = next;
  }
  return true;
}

/* ---- the model ---- */

/* A merge is "a b" or ["a", "b"]. */
static bool merge_parts(const json_t *merge, const char **left, size_t *left_bytes, const char **right,
                        size_t *right_bytes) {
  if (json_is_array(merge)) {
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    *left = json_string_value(a), *right = json_string_value(b);
    *left_bytes = json_string_length(a), *right_bytes = json_string_length(b);
    return json_array_size(merge) == 2 && *left && *right && *left_bytes > 0 && *right_bytes > 0;
  }
  *left = json_string_value(merge);
  const char *blank = *left ? strchr(*left, ' ') : NULL;
  if (!blank) return false;
  *right = blank + 1;
  *left_bytes = (size_t)(blank - *left), *right_bytes = strlen(*right);
  return *left_bytes > 0 && *right_bytes > 0 && !strchr(*right, ' ');
}

static bool read_merges(const reading *r, const json_t *vocab, const json_t *merges) {
  train_bpe *bpe = &r->t->bpe;
  size_t i, room = 0;
  json_t *merge;
  char *joined = NULL;
  bool good = true;
  json_array_foreach(merges, i, merge) {
    const char *left, *right;
    size_t left_bytes, right_bytes;
    if (!merge_parts(merge, &left, &left_bytes, &right, &right_bytes)) {
      good = wrong(r, "merge %zu is not two texts", i);
      break;
    }
    if (left_bytes + right_bytes > room) {
      free(joined);
      joined = malloc(room = 2 * (left_bytes + right_bytes));
    }
    if (!joined) {
      good = train_fail(r->error, TRAIN_EXIT_TROUBLE, "no memory for the merges of the tokenizer");
      break;
    }
    memcpy(joined, left, left_bytes);
    memcpy(joined + left_bytes, right, right_bytes);
    const json_t *a = json_object_getn(vocab, left, left_bytes), *b = json_object_getn(vocab, right, right_bytes);
    const json_t *both = json_object_getn(vocab, joined, left_bytes + right_bytes);
    if (!a || !b || !both) {
      good =
          wrong(r, "merge %zu joins \"%.40s\" and \"%.40s\", of which a part or the whole is no token", i, left, right);
      break;
    }
    train_bpe_merge_add(bpe, (int32_t)json_integer_value(a), (int32_t)json_integer_value(b), (int32_t)i,
                        (int32_t)json_integer_value(both));
  }
  free(joined);
  return good;
}

static bool read_model(const reading *r, json_t *model) {
  train_tokenizer *t = r->t;
  json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
  const json_t *added = json_object_get(t->json, "added_tokens");
  const json_t *type = json_object_get(model, "type"); /* older files have none */
  int64_t used = 0;
  if (type && strcmp(text_of(model, "type"), "BPE") != 0)
    return wrong(r, "its model is \"%.60s\", must be \"BPE\"", text_of(model, "type"));
  if (!json_is_object(vocab)) return wrong(r, "model.vocab must be an object");
  if (!json_is_array(merges)) return wrong(r, "model.merges must be a list");
  if (added && !json_is_array(added)) return wrong(r, "added_tokens must be a list");
  if (json_array_size(merges) > TRAIN_LARGEST_VOCAB) return wrong(r, "it has over %d merges", TRAIN_LARGEST_VOCAB);
  if (is_true(model, "byte_fallback", false)) return wrong(r, "model.byte_fallback is not supported");
  if (!is_empty(model, "dropout") && json_number_value(json_object_get(model, "dropout")) != 0)
    return wrong(r, "model.dropout is not supported");
  if (!is_empty(model, "continuing_subword_prefix") || !is_empty(model, "end_of_word_suffix"))
    return wrong(r, "model.continuing_subword_prefix and end_of_word_suffix are not supported");
  if (!read_vocab(r, vocab, added, &used) || !read_added(r, added, &used) ||
      !train_bpe_create(&t->bpe, (int64_t)json_array_size(merges), r->error) || !read_merges(r, vocab, merges))
    return false;
  for (int b = 0; b < 256; ++b) {
    char letter[2];
    const int count = train_byte_letter((uint8_t)b, letter);
    const json_t *token = json_object_getn(vocab, letter, (size_t)count);
    if (token) t->bpe.byte_tokens[b] = (int32_t)json_integer_value(token);
  }
  if (!is_empty(model, "unk_token")) {
    const json_t *token = json_object_get(vocab, text_of(model, "unk_token"));
    if (token) t->bpe.unknown = (int32_t)json_integer_value(token);
  }
  if (is_true(model, "ignore_merges", false)) t->whole = vocab;
  return true;
}

/* ---- normalizers, pre-tokenizers, decoders, templates ---- */

/* Calls `read` with the object, or with each one of a Sequence's `key`; depth limits sequences in sequences. */
typedef bool (*read_one)(const reading *r, const json_t *object, const char *type);
static bool each(const reading *r, const json_t *object, const char *what, const char *key, int depth, read_one read) {
  if (!object || json_is_null(object)) return true;
  const char *type = text_of(object, "type");
  if (!json_is_object(object) || !*type) return wrong(r, "%s must be an object with a type", what);
  if (strcmp(type, "Sequence") != 0) return read(r, object, type);
  const json_t *list = json_object_get(object, key);
  if (!json_is_array(list) || depth == 0) return wrong(r, "the Sequence of %s must have a list of %s", what, key);
  size_t i;
  json_t *one;
  json_array_foreach(list, i, one) {
    if (!each(r, one, what, key, depth - 1, read)) return false;
  }
  return true;
}

static bool read_normalizer(const reading *r, const json_t *object, const char *type) {
  static const struct {
    const char *name;
    int options;
  } known[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
               {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
               {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
               {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  (void)object;
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (strcmp(type, known[i].name) != 0) continue;
    if (r->t->normalizer_count == TRAIN_NORMALIZERS) return wrong(r, "it has over %d normalizers", TRAIN_NORMALIZERS);
    r->t->normalizers[r->t->normalizer_count++] = known[i].options;
    return true;
  }
  return wrong(r, "the normalizer %.60s is not supported (NFC, NFD, NFKC and NFKD are)", type);
}

static bool add_step(const reading *r, const char *pattern, bool literal, train_split_keep keep, bool prefix) {
  train_error why;
  return train_split_add(r->t->split, pattern, literal, keep, prefix, &why) || wrong(r, "%.500s", why.text);
}

static bool read_split(const reading *r, const json_t *object) {
  const json_t *pattern = json_object_get(object, "pattern");
  const char *regex = json_string_value(json_object_get(pattern, "Regex"));
  const char *literal = json_string_value(json_object_get(pattern, "String"));
  const char *behavior = text_of(object, "behavior");
  const bool removed = strcmp(behavior, "Removed") == 0, invert = is_true(object, "invert", false);
  if (!regex && !literal) return wrong(r, "the pattern of a Split must be a Regex or a String");
  if (!removed && strcmp(behavior, "Isolated") != 0)
    return wrong(r, "the behavior %.60s of a Split is not supported (Isolated and Removed are)", behavior);
  const train_split_keep keep = !removed ? TRAIN_SPLIT_BOTH : invert ? TRAIN_SPLIT_MATCHES : TRAIN_SPLIT_BETWEEN;
  return add_step(r, regex ? regex : literal, !regex, keep, false);
}

/* Steps of the split. A ByteLevel's use_regex and add_prefix_space are true when they are absent. */
static bool read_pre_tokenizer(const reading *r, const json_t *object, const char *type) {
  if (strcmp(type, "Split") == 0) return read_split(r, object);
  if (strcmp(type, "Digits") == 0)
    return add_step(r, is_true(object, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", false, TRAIN_SPLIT_BOTH,
                    false);
  if (strcmp(type, "ByteLevel") != 0)
    return wrong(r, "the pre-tokenizer %.60s is not supported (ByteLevel, Split and Digits are)", type);
  r->t->byte_level = true;
  return add_step(r, is_true(object, "use_regex", true) ? gpt2 : NULL, false, TRAIN_SPLIT_BOTH,
                  is_true(object, "add_prefix_space", true));
}

static bool read_decoder(const reading *r, const json_t *object, const char *type) {
  (void)object;
  return strcmp(type, "ByteLevel") == 0 || wrong(r, "the decoder %.60s is not supported (ByteLevel is)", type);
}

/* What a template puts before a text. */
static bool read_processor(const reading *r, const json_t *object, const char *type) {
  train_tokenizer *t = r->t;
  size_t i, j;
  json_t *part, *id;
  if (strcmp(type, "ByteLevel") == 0) return true;
  if (strcmp(type, "TemplateProcessing") != 0)
    return wrong(r, "the post-processor %.60s is not supported (ByteLevel and TemplateProcessing are)", type);
  json_array_foreach(json_object_get(object, "single"), i, part) {
    const json_t *special = json_object_get(part, "SpecialToken");
    if (!special) break;
    const json_t *row = json_object_get(json_object_get(object, "special_tokens"), text_of(special, "id"));
    json_array_foreach(json_object_get(row, "ids"), j, id) {
      int32_t token = 0;
      if (!read_token(r, text_of(special, "id"), id, &token)) return false;
      if (token >= t->vocab || t->begin_count == TRAIN_TEMPLATE)
        return wrong(r, "the special token \"%.60s\" of its template is none of its tokens", text_of(special, "id"));
      t->begin[t->begin_count++] = token;
    }
  }
  return true;
}

bool train_tokenizer_read(train_tokenizer *t, train_error *error) {
  enum { DEPTH = 4 };
  json_error_t broken;
  const reading r = {t, error};
  train_json_begin();
  t->json = train_json_whole(json_loadb(t->file, t->file_bytes, JSON_REJECT_DUPLICATES, &broken));
  if (!t->json && train_json_lacked()) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", t->path);
  if (!t->json) return wrong(&r, "its JSON is broken in line %d: %.120s", broken.line, broken.text);
  t->split = train_split_create(error);
  if (!t->split || !read_model(&r, json_object_get(t->json, "model")) ||
      !each(&r, json_object_get(t->json, "normalizer"), "normalizer", "normalizers", DEPTH, read_normalizer) ||
      !each(&r, json_object_get(t->json, "pre_tokenizer"), "pre_tokenizer", "pretokenizers", DEPTH,
            read_pre_tokenizer) ||
      !each(&r, json_object_get(t->json, "decoder"), "decoder", "decoders", DEPTH, read_decoder) ||
      !each(&r, json_object_get(t->json, "post_processor"), "post_processor", "processors", DEPTH, read_processor))
    return false;
  return t->byte_level || wrong(&r, "its pre_tokenizer has no ByteLevel: only byte-level BPE is supported");
}
