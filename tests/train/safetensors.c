/* The reader against hostile files: each is refused by one sentence, none is read out of bounds. And what is written is
 * read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "safetensors.h"

static char folder[] = "/tmp/tigon-safetensors-XXXXXX";
static char path[64];

static int setup(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s/x.safetensors", folder);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  unlink(path);
  return rmdir(folder);
}

/* length (-1: the header's own), header, bytes of data. */
static void put(int64_t length, const char *header, size_t header_bytes, size_t data_bytes) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  const uint64_t says = length < 0 ? header_bytes : (uint64_t)length;
  for (int i = 0; i < 8; ++i) fputc((int)(says >> (8 * i) & 255), file);
  fwrite(header, 1, header_bytes, file);
  for (size_t i = 0; i < data_bytes; ++i) fputc((int)(i & 255), file);
  fclose(file);
}

typedef struct hostile {
  const char *header; /* JSON */
  int64_t length;     /* what the file says; -1: the truth */
  size_t data;        /* bytes */
  const char *says;   /* part of the sentence */
} hostile;

#define F32_AT(begin, end) "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" #begin "," #end "]}}"

static const hostile table[] = {
    {F32_AT(0, 8), INT64_MAX, 8, "its header says 9223372036854775807 bytes of JSON"},
    {F32_AT(0, 8), 100, 8, "its header says 100 bytes of JSON, must be at most"},
    {F32_AT(0, 8), 20, 8, "its JSON is broken"},
    {F32_AT(0, 8), 0, 8, "its JSON is broken"},
    {"[]", -1, 0, "its JSON is no object"},
    {"{", -1, 0, "its JSON is broken"},
    {F32_AT(0, 8), -1, 7, "ends behind the file's end (truncated?)"},
    {F32_AT(0, 8), -1, 9, "bytes behind its last tensor"},
    {F32_AT(0, 4), -1, 8, "do not match its dtype and shape"},
    {F32_AT(8, 0), -1, 8, "no range"},
    {F32_AT(-8, 0), -1, 8, "no range"},
    {F32_AT(1, 9), -1, 9, "leaves a gap before it"},
    {F32_AT(0, 9223372036854775807), -1, 8, "ends behind the file's end"},
    {F32_AT(0, 92233720368547758070), -1, 8, "its JSON is broken"},
    {F32_AT(0, 8.0), -1, 8, "no range"},
    {F32_AT(9223372036854775800, 9223372036854775807), -1, 8, "ends behind the file's end"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,16]}}", -1, 8, "lacks a dtype, a shape or two"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", -1, 8, "lacks a dtype, a shape or two"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", -1, 8, "lacks a dtype, a shape or two"},
    {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", -1, 8, "lacks a dtype, a shape or two"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", -1, 8, "unknown dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", -1, 8, "not of whole numbers >= 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}}", -1, 8, "not of whole numbers >= 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", -1, 0, "overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,0]}}", -1, 0, "overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", -1, 4, "over 8 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     -1, 8, "duplicate"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     -1, 8, "overlaps another"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
     -1, 4, "overlaps another"},
    {"{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}", -1, 8, "lacks a dtype, a shape or two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", -1, 8, "lacks a dtype, a shape or two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", -1, 8,
     "lacks a dtype, a shape or two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", -1, 8, "lacks a dtype, a shape or two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":8}}", -1, 8,
     "lacks a dtype, a shape or two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", -1, 8,
     "lacks a dtype, a shape or two data_offsets"},
    {"{\"a\":[1,2]}", -1, 0, "lacks a dtype"},
    {"{\"__metadata__\":[]}", -1, 0, "__metadata__ is no object"},
    {"{\"__metadata__\":{\"step\":5}}", -1, 0, "no text"},
};

static void refuses(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
    train_safetensors reader;
    train_error error = {0};
    put(table[i].length, table[i].header, strlen(table[i].header), table[i].data);
    if (train_safetensors_open(path, &reader, &error)) fail_msg("file %zu was accepted: %s", i, table[i].header);
    assert_int_equal(error.exit_code, TRAIN_EXIT_TROUBLE);
    if (!strstr(error.text, table[i].says)) fail_msg("file %zu: \"%s\" lacks \"%s\"", i, error.text, table[i].says);
    assert_null(strchr(error.text, '\n'));
  }
}

/* Every prefix of a good file is refused; so is JSON that nests without end. */
static void truncated(void **state) {
  (void)state;
  const char *header = F32_AT(0, 8);
  const size_t whole = 8 + strlen(header) + 8;
  train_safetensors reader;
  train_error error;
  put(-1, header, strlen(header), 8);
  assert_true(train_safetensors_open(path, &reader, &error));
  train_safetensors_close(&reader);
  for (size_t bytes = 0; bytes < whole; ++bytes) {
    put(-1, header, strlen(header), 8);
    assert_int_equal(truncate(path, (off_t)bytes), 0);
    assert_false(train_safetensors_open(path, &reader, &error));
  }
  char *deep = malloc(1 << 20);
  memset(deep, '[', 1 << 20);
  put(-1, deep, 1 << 20, 0);
  free(deep);
  assert_false(train_safetensors_open(path, &reader, &error));
  assert_false(train_safetensors_open(folder, &reader, &error));
  assert_false(train_safetensors_open("/nonexistent/x", &reader, &error));
  assert_string_equal(error.text, "cannot open /nonexistent/x: No such file or directory");
}

/* The order in the header is none of the data's, and a tensor may be empty. */
static void any_order(void **state) {
  (void)state;
  const char *header = "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                       "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},\"__metadata__\":{}}";
  train_safetensors reader;
  train_error error = {0};
  put(-1, header, strlen(header), 8);
  assert_true(train_safetensors_open(path, &reader, &error));
  assert_int_equal(reader.count, 3);
  assert_string_equal(reader.tensors[0].name, "a");
  assert_string_equal(reader.tensors[1].name, "e");
  assert_string_equal(reader.tensors[2].name, "b");
  const int64_t shape[2] = {1, 1};
  assert_null(train_safetensors_expect(&reader, "a", "I32", 1, shape, &error));
  assert_non_null(strstr(error.text, "tensor \"a\" is F32 with 1 dimensions and 4 bytes, must be I32 [1]"));
  assert_null(train_safetensors_expect(&reader, "a", "F32", 2, shape, &error));
  assert_non_null(strstr(error.text, "must be F32 [1, 1]"));
  train_safetensors_close(&reader);
  static char name[5000];
  memset(name, 'a', sizeof name - 1);
  assert_false(train_safetensors_open(name, &reader, &error));
  assert_string_equal(error.text, "the checkpoint's path is longer than 4095 bytes");
}

static bool fill(void *user, int64_t index, int64_t first, int64_t count, void *to, train_error *error) {
  (void)user;
  (void)error;
  for (int64_t i = 0; i < count; ++i) ((uint8_t *)to)[i] = (uint8_t)(37 * index + first + i);
  return true;
}

static void round_trip(void **state) {
  (void)state;
  train_safetensor tensors[] = {{.name = "one", .dtype = "F32", .ndim = 2, .shape = {300, 1000}},
                                {.name = "empty", .dtype = "I64", .ndim = 1, .shape = {0}},
                                {.name = "two \"quoted\"", .dtype = "BF16", .ndim = 1, .shape = {3}}};
  json_t *metadata = json_pack("{s:s, s:s}", "format", "pt", "step", "12");
  train_safetensors reader;
  train_error error;
  assert_true(train_safetensors_write(path, tensors, 3, metadata, fill, NULL, &error));
  assert_true(train_file_commit(path, &error));
  json_decref(metadata);
  assert_true(train_safetensors_open(path, &reader, &error));
  assert_int_equal(reader.data % 8, 0);
  assert_string_equal(train_safetensors_metadata(&reader, "step"), "12");
  assert_null(train_safetensors_metadata(&reader, "nothing"));
  for (int i = 0; i < 3; ++i) {
    const train_safetensor *t =
        train_safetensors_expect(&reader, tensors[i].name, tensors[i].dtype, tensors[i].ndim, tensors[i].shape, &error);
    assert_non_null(t);
    uint8_t *bytes = malloc((size_t)t->bytes + 1);
    assert_true(train_safetensors_read(&reader, t, 0, t->bytes, bytes, &error));
    for (int64_t b = 0; b < t->bytes; ++b) assert_int_equal(bytes[b], (uint8_t)(37 * i + b));
    free(bytes);
  }
  const int64_t shape[2] = {1000, 300};
  assert_null(train_safetensors_expect(&reader, "one", "F32", 2, shape, &error));
  assert_non_null(strstr(error.text, "must be F32 [1000, 300]"));
  assert_null(train_safetensors_expect(&reader, "three", "F32", 2, shape, &error));
  assert_non_null(strstr(error.text, "tensor \"three\" is missing"));
  train_safetensors_close(&reader);
}

/* Random bytes over a good file: never a crash (the sanitizers look on). */
static void mutated(void **state) {
  (void)state;
  const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                       "\"b\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[8,24]}}";
  uint64_t seed = 1;
  for (int round = 0; round < 3000; ++round) {
    char bytes[256];
    const size_t count = strlen(header);
    memcpy(bytes, header, count);
    for (int change = 0; change <= round % 3; ++change) {
      seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
      bytes[(seed >> 33) % count] = (char)(32 + (seed >> 48) % 95);
    }
    put(-1, bytes, count, 24);
    train_safetensors reader;
    train_error error;
    if (train_safetensors_open(path, &reader, &error)) train_safetensors_close(&reader);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(refuses), cmocka_unit_test(truncated),
                                     cmocka_unit_test(any_order), cmocka_unit_test(round_trip),
                                     cmocka_unit_test(mutated)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
