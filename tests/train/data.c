/* Texts, token files, splits, and batches as a pure function of seed, step and sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "data.h"
#include "folder.h"
#include "utf8.h"

static train_memory memory;
static train_error error;

/* folder/name, filled. The returned path is overwritten by the fourth call after it. */
static const char *put(const char *name, const void *bytes, size_t count) {
  char *path = path_of(name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  fwrite(bytes, 1, count, file);
  fclose(file);
  return path;
}

static train_options options_for(const char *data, int64_t seq) {
  train_options o;
  train_options_init(&o);
  o.data = data;
  o.seq = seq;
  return o;
}

static void expect_failure(const train_options *o, const char *says) {
  train_data data;
  if (train_data_open(&memory, o, NULL, &data, &error)) fail_msg("accepted: %s", o->data);
  if (!strstr(error.text, says)) fail_msg("\"%s\" lacks \"%s\"", error.text, says);
  assert_int_equal(memory.now, 0);
}

static void text_split(void **state) {
  (void)state;
  char text[1000];
  for (int i = 0; i < 1000; ++i) text[i] = (char)('a' + i % 26);
  const train_options o = options_for(put("plain.txt", text, sizeof text), 8);
  train_data data;
  assert_true(train_data_open(&memory, &o, NULL, &data, &error));
  assert_int_equal(data.vocab, 256);
  assert_int_equal(data.train.count, 950);
  assert_int_equal(data.heldout.count, 50);
  assert_int_equal(train_data_windows(&data, 8), 6);
  int32_t tokens[8], labels[8];
  assert_true(train_data_window(&data, 8, 5, tokens, labels, &error));
  for (int i = 0; i < 8; ++i) {
    assert_int_equal(tokens[i], text[950 + 40 + i]);
    assert_int_equal(labels[i], text[950 + 40 + i + 1]);
  }
  train_data_close(&memory, &data);
  assert_int_equal(memory.now, 0);
}

/* The sequences of a step do not depend on how they are shared out, and stay inside the training part. */
static void batches(void **state) {
  (void)state;
  uint8_t text[500];
  for (int i = 0; i < 500; ++i) text[i] = (uint8_t)(i % 95 + ' ');
  const train_options o = options_for(put("b.txt", text, sizeof text), 16);
  train_data data;
  assert_true(train_data_open(&memory, &o, NULL, &data, &error));
  int32_t whole[8 * 16], labels[8 * 16], part[2 * 16], part_labels[2 * 16], other[8 * 16];
  int same_as_other_step = 0;
  for (int64_t step = 1; step < 50; ++step) {
    assert_true(train_data_batch(&data, 5, step, 8, 16, 0, 8, whole, labels, &error));
    for (int64_t first = 0; first < 8; first += 2) {
      assert_true(train_data_batch(&data, 5, step, 8, 16, first, 2, part, part_labels, &error));
      assert_memory_equal(part, whole + first * 16, sizeof part);
      assert_memory_equal(part_labels, labels + first * 16, sizeof part_labels);
    }
    for (int i = 0; i < 8 * 16; ++i) assert_int_equal(labels[i], (whole[i] - ' ' + 1) % 95 + ' ');
    for (int i = 0; i + 1 < 16; ++i) assert_int_equal(labels[i], whole[i + 1]);
    if (step > 1) same_as_other_step += memcmp(other, whole, sizeof whole) == 0;
    memcpy(other, whole, sizeof whole);
  }
  assert_int_equal(same_as_other_step, 0);
  assert_true(train_data_batch(&data, 6, 49, 8, 16, 0, 8, whole, labels, &error));
  assert_memory_not_equal(other, whole, sizeof whole);
  train_data_close(&memory, &data);
}

static void folder_of_text(void **state) {
  (void)state;
  char path[256];
  snprintf(path, sizeof path, "%s/many", folder);
  mkdir(path, 0777);
  snprintf(path, sizeof path, "%s/many/sub", folder);
  mkdir(path, 0777);
  put("many/b.txt", "\xef\xbb\xbfsecond", 9);
  put("many/a.txt", "first\n", 6);
  put("many/sub/c.txt", "third", 5);
  put("many/.hidden", "no", 2);
  put("many/picture.png", "\x89PNG\xff\xfe", 6);
  snprintf(path, sizeof path, "%s/many", folder);
  train_source source;
  assert_true(train_source_open_text(&memory, path, &source, &error));
  const char *all = "first\nsecond\nthird\n";
  assert_int_equal(source.count, strlen(all));
  assert_memory_equal(source.text.data, all, strlen(all));
  assert_string_equal(source.note, "1 file is not UTF-8 text and left out");
  train_source_close(&memory, &source);
}

static void token_files(void **state) {
  (void)state;
  uint16_t narrow[400];
  uint32_t wide[400], header[256 + 400] = {20240801, 7, 400};
  for (int i = 0; i < 400; ++i) header[256 + i] = wide[i] = narrow[i] = (uint16_t)(i * 5 % 301);
  train_options o = options_for(put("t.bin", narrow, sizeof narrow), 8);
  train_data data;
  int32_t tokens[8], labels[8];
  assert_true(train_data_open(&memory, &o, NULL, &data, &error));
  assert_int_equal(data.vocab, 301);
  assert_true(train_data_window(&data, 8, 0, tokens, labels, &error));
  assert_int_equal(tokens[0], wide[380]);
  train_data_close(&memory, &data);

  o = options_for(put("w.bin", wide, sizeof wide), 8);
  o.token_bits = "32";
  assert_true(train_data_open(&memory, &o, NULL, &data, &error));
  assert_int_equal(data.train.count, 380);
  train_data_close(&memory, &data);

  o = options_for(put("h.bin", header, sizeof header), 8); /* llm.c's header says 32 bits */
  assert_true(train_data_open(&memory, &o, NULL, &data, &error));
  assert_int_equal(data.source.count, 400);
  assert_int_equal(data.vocab, 301);
  train_data_close(&memory, &data);

  o.vocab = 200; /* a token above it is found when it is read */
  assert_true(train_data_open(&memory, &o, NULL, &data, &error));
  assert_false(train_data_batch(&data, 1, 1, 64, 8, 0, 1, tokens, labels, &error) &&
               train_data_batch(&data, 1, 1, 64, 8, 1, 1, tokens, labels, &error) &&
               train_data_batch(&data, 1, 1, 64, 8, 2, 1, tokens, labels, &error) &&
               train_data_batch(&data, 1, 1, 64, 8, 3, 1, tokens, labels, &error));
  assert_non_null(strstr(error.text, "must be below the vocabulary of 200"));
  train_data_close(&memory, &data);

  expect_failure(&(train_options){.data = put("cut.bin", header, sizeof header - 2), .seq = 8, .token_bits = "16"},
                 "is truncated: its header says 400 tokens of 4 bytes, 399 are there");
  expect_failure(&(train_options){.data = put("odd.bin", narrow, 401), .seq = 8, .token_bits = "16"},
                 "has 401 bytes, must be a multiple of 2 (--token-bits 16)");
  expect_failure(&(train_options){.data = put("none.bin", "", 0), .seq = 8, .token_bits = "16"}, "none.bin is empty");
}

/* nanoGPT's folder: train.bin, val.bin and things that are no tokens. */
static void token_folder(void **state) {
  (void)state;
  char path[256];
  uint16_t tokens[300];
  for (int i = 0; i < 300; ++i) tokens[i] = (uint16_t)i;
  snprintf(path, sizeof path, "%s/bins", folder);
  mkdir(path, 0777);
  put("bins/train.bin", tokens, sizeof tokens);
  put("bins/val.bin", tokens, 100);
  put("bins/readme.md", "words", 5);
  const train_options o = options_for(path, 8);
  train_data data;
  assert_true(train_data_open(&memory, &o, NULL, &data, &error));
  assert_int_equal(data.train.count, 300);
  assert_int_equal(data.heldout.count, 50);
  assert_int_equal(data.vocab, 300);
  train_data_close(&memory, &data);
}

static void refuses(void **state) {
  (void)state;
  train_options o = options_for("/nonexistent/text", 8);
  expect_failure(&o, "cannot open /nonexistent/text: No such file or directory");
  o.data = put("empty.txt", "", 0);
  expect_failure(&o, "empty.txt is empty");
  o.data = put("short.txt", "0123456789", 10);
  expect_failure(&o, "the data has 10 tokens, must have at least 18 for --seq 8");
  o.data = put("latin.txt", "caf\xe9 au lait", 12);
  expect_failure(&o, "is not UTF-8 text: byte 0xe9 at 3");
  o.data = put("bytes.txt", "\x01\x02", 2);
  expect_failure(&o, "is not UTF-8 text: byte 0x01 at 0");
  uint8_t large[4 * 18];
  memset(large, 0xff, sizeof large);
  o.data = put("large.bin", large, sizeof large);
  o.token_bits = "32";
  expect_failure(
      &o,
      "the data's largest token is 2147483647 or more, must be below 16777216: other --token-bits, or no token file");
  o.token_bits = "16";
  o.data = "/dev/zero";
  expect_failure(&o, "is neither a file nor a folder");
  o.data = put("long.txt", "0123456789012345678901234567890123456789", 40);
  o.vocab = 300;
  expect_failure(&o, "the vocabulary is 300, must be 256 for text");
  o.vocab = 0;
  o.heldout = put("held.txt", "012345678", 8);
  expect_failure(&o, "the held-out data has 8 tokens, must have at least 9 for --seq 8");
}

static void utf8(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t count, wrong; /* wrong == count: valid */
  } table[] = {{"abc", 3, 3},       {"\xc3\xa9", 2, 2},     {"\xe2\x82\xac!", 4, 4},    {"\xf0\x9f\x90\xaf", 4, 4},
               {"\xc0\x80", 2, 0},  {"\xe0\x80\x80", 3, 0}, {"\xed\xa0\x80", 3, 0},     {"\xf4\x90\x80\x80", 4, 0},
               {"a\xe2\x82", 3, 1}, {"\x80", 1, 0},         {"\xf5\x80\x80\x80", 4, 0}, {"", 0, 0},
               {"ab\0c", 4, 2},     {"\x01", 1, 0},         {"a\033[1m\b\r\n", 8, 8}};
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    size_t wrong = table[i].count;
    const bool valid = train_utf8_is_text((const uint8_t *)table[i].bytes, table[i].count, &wrong);
    assert_int_equal(valid, table[i].wrong == table[i].count);
    assert_int_equal(wrong, table[i].wrong);
  }
  char shown[64];
  train_utf8_show((const uint8_t *)"a\033[2J\xff\xc3\xa9\n\xc2\x9b", 11, shown);
  assert_string_equal(shown, "a\xef\xbf\xbd[2J\xef\xbf\xbd\xc3\xa9\n\xef\xbf\xbd");
}

/* The verses without their numbers, when the package is there. */
static void bible(void **state) {
  (void)state;
  train_source source;
  if (!train_source_open_bible(&memory, &source, &error)) {
    assert_string_equal(error.text, "the default text is not installed: apt-get install bible-kjv bible-kjv-text, or "
                                    "give --data PATH");
    skip();
  }
  const char *text = source.text.data;
  assert_true(source.count > 4000000);
  assert_memory_equal(text, "In the beginning God created the heaven and the earth.\nAnd the earth was", 70);
  assert_memory_equal(text + source.count - 6, "Amen.\n", 6);
  train_source_close(&memory, &source);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(text_split),     cmocka_unit_test(batches),
                                     cmocka_unit_test(folder_of_text), cmocka_unit_test(token_files),
                                     cmocka_unit_test(token_folder),   cmocka_unit_test(refuses),
                                     cmocka_unit_test(utf8),           cmocka_unit_test(bible)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
