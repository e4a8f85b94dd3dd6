/* Every allocation that a checkpoint needs fails once, and so does every call of the system. A failure is one sentence. The files are then
 * as they were or as they are to be, and the same call passes afterwards. Other cases: wrong paths, folders, indexes. */
#include <errno.h>
#include <math.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "config_json.h"
#include "faults.h"
#include "folder.h"
#include "tiny.h"

static void put(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void expect(bool good, const train_error *error, const char *format, ...) {
  char sentence[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(sentence, sizeof sentence, format, list);
  va_end(list);
  assert_false(good);
  assert_string_equal(error->text, sentence);
  assert_int_equal(error->exit_code, TRAIN_EXIT_TROUBLE);
}

/* ---- a whole checkpoint ---- */

tigon_status __real_tigon_copy(tigon_context *context, void *to, const void *from, size_t bytes);
tigon_status __wrap_tigon_copy(tigon_context *context, void *to, const void *from, size_t bytes);
tigon_status __wrap_tigon_copy(tigon_context *context, void *to, const void *from, size_t bytes) {
  return faults_now("tigon_copy") ? TIGON_ERROR_DEVICE : __real_tigon_copy(context, to, from, bytes);
}
tigon_status __real_tigon_fill(tigon_context *context, void *memory, int value, size_t bytes);
tigon_status __wrap_tigon_fill(tigon_context *context, void *memory, int value, size_t bytes);
tigon_status __wrap_tigon_fill(tigon_context *context, void *memory, int value, size_t bytes) {
  return faults_now("tigon_fill") ? TIGON_ERROR_DEVICE : __real_tigon_fill(context, memory, value, bytes);
}

static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "config.json"};
enum { NAMES = 3, ROOM = 1 << 20 };
static char before[NAMES][ROOM], now[NAMES][ROOM];
static size_t sizes[NAMES];

static size_t read_file(const char *path, char *to) {
  FILE *file = fopen(path, "rb");
  const size_t bytes = file ? fread(to, 1, ROOM, file) : 0;
  if (file) fclose(file);
  return bytes;
}

static tiny t;
static train_options options;
static train_history history;
static const train_state progress = {.scaler = {.on = true, .scale = 1024, .good_steps = 2, .skipped = 1},
                                     .best_step = 3,
                                     .best_loss = 2.5,
                                     .tokens = 48};

static bool save(train_error *error) {
  const train_progress p = {.step = 3, .digest = 7, .options = &options, .history = &history, .state = progress};
  return train_checkpoint_save(path_of("run"), &t.model, &p, error);
}

static bool older; /* the checkpoint is: it has no rates */
static bool load(train_error *error) {
  train_checkpoint c;
  train_options o;
  train_history h = {0};
  train_options_init(&o);
  if (!train_checkpoint_open(path_of("run"), &c, &o, error)) return false;
  const bool good = train_checkpoint_load(&c, &t.model, &h, error);
  assert_true(c.state.scaler.scale == 1024 && c.state.scaler.good_steps == 2 && c.state.scaler.skipped == 1);
  assert_true(c.state.best_step == 3 && c.state.best_loss == 2.5 && c.state.tokens == 48);
  if (good)
    assert_true(h.steps == 3 && h.loss[2] == 3 && (older ? isnan(h.rate[2]) : h.rate[2] == 0.5f) && h.evals == 1);
  train_history_free(&h);
  train_checkpoint_close(&c);
  return good;
}

/* All but the history. */
static bool load_tensors(train_error *error) {
  train_checkpoint c;
  train_options o;
  train_options_init(&o);
  if (!train_checkpoint_open(path_of("run"), &c, &o, error)) return false;
  const bool good = train_checkpoint_load(&c, &t.model, NULL, error);
  train_checkpoint_close(&c);
  return good;
}

/* Weights alone, in f32, of a folder that has an index besides. */
static bool load_weights(train_error *error) {
  train_checkpoint c;
  train_options o;
  train_model model;
  train_options_init(&o);
  if (!train_checkpoint_open_weights(path_of("run"), &c, &o, error)) return false;
  const bool good = train_checkpoint_load(&c, &t.model, NULL, error);
  train_checkpoint_close(&c);
  if (!good || !train_checkpoint_read(path_of("run"), &t.memory, TIGON_F32, &model, error)) return false;
  train_model_destroy(&model);
  return true;
}

/* As older versions left it: the optimizer's file with other letters, as many. */
static void replace_text(const char *from, const char *to) {
  static char bytes[ROOM];
  const size_t count = read_file(path_of("run/optimizer.safetensors"), bytes);
  char *at = memmem(bytes, count, from, strlen(from));
  assert_true(at && strlen(from) == strlen(to));
  memcpy(at, to, strlen(to));
  FILE *file = fopen(path_of("run/optimizer.safetensors"), "wb");
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  fclose(file);
}

/* A state that cannot be one. */
static void wrong_states(void) {
  static const struct {
    const char *from, *to, *says;
  } all[] = {{"\"tokens\":\"48\"", "\"tokens\":\"-8\"", "tokens is no whole number from 0 to 9007199254740992"},
             {"\"tokens\":\"48\"", "\"tokens\":\"4x\"", "tokens is no whole number from 0 to 9007199254740992"},
             {"\"tokens\":\"48\"", "\"tokens\":\"\"  ", "tokens is no whole number from 0 to 9007199254740992"},
             {"\"best_step\":\"3\"", "\"best_step\":\"4\"", "best_step is no whole number from 0 to 3"},
             {"\"best_loss\":\"2.5\"", "\"best_loss\":\"2,5\"", "best_loss is no number from 0 to 1.79769e+308"},
             {"\"best_loss\":\"2.5\"", "\"best_loss\":\"inf\"", "best_loss is no number from 0 to 1.79769e+308"},
             {"\"best_loss\":\"2.5\"", "\"best_loss\":\"\"   ", "best_loss is no number from 0 to 1.79769e+308"},
             {"\"loss_scale\":\"1024\"", "\"loss_scale\":\"-024\"", "loss_scale is no number from 1 to "},
             {"\"good_steps\":\"2\"", "\"good_steps\":\"9\"", "good_steps is no whole number from 0 to 3"},
             {"\"skipped_steps\":\"1\"", "\"skipped_steps\":\"x\"", "skipped_steps is no whole number from 0 to 3"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    train_error error = {0};
    replace_text(all[i].from, all[i].to);
    assert_false(load(&error));
    if (!strstr(error.text, all[i].says)) fail_msg("\"%s\" lacks \"%s\"", error.text, all[i].says);
    replace_text(all[i].to, all[i].from);
  }
}

static bool load_shards(train_error *error) {
  train_model model;
  if (!train_checkpoint_read(path_of("shards"), &t.memory, TIGON_F16, &model, error)) return false;
  train_model_destroy(&model);
  return true;
}

static void open_run(void) {
  train_error error = {0};
  tiny_open(&t, TIGON_F32, false, true);
  train_options_init(&options);
  options.warmup = 3, options.seq = TINY_SEQ, options.vocab = 19, options.hidden = 16;
  for (int i = 1; i <= 3; ++i) tiny_good(train_history_add(&history, (float)i, 0.5f, &error), &error);
  tiny_good(train_history_add_eval(&history, 3, 2.5f, &error), &error);
  tiny_good(train_folder_create(path_of("run"), &error), &error);
  tiny_good(train_folder_create(path_of("shards"), &error), &error);
  tiny_good(save(&error), &error);
  for (int i = 0; i < NAMES; ++i) {
    char name[64];
    snprintf(name, sizeof name, "run/%s", names[i]);
    sizes[i] = read_file(path_of(name), before[i]);
  }
  char command[512];
  snprintf(command, sizeof command,
           "cp %s/run/config.json %s/shards && cp %s/run/model.safetensors %s/shards/a.safetensors", folder, folder,
           folder, folder);
  assert_int_equal(system(command), 0);
  put(path_of("shards/model.safetensors.index.json"),
      "{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"a.safetensors\"}}");
}

static void close_run(void) {
  train_history_free(&history);
  tiny_close(&t);
}

static bool is_as_before(void) {
  for (int i = 0; i < NAMES; ++i) {
    char name[64];
    snprintf(name, sizeof name, "run/%s", names[i]);
    if (read_file(path_of(name), now[i]) != sizes[i] || memcmp(now[i], before[i], sizes[i]) != 0) return false;
    strcat(name, ".tmp");
    if (access(path_of(name), F_OK) == 0) return false;
  }
  return true;
}

/* Whether the sentence is one of a call that found no memory. */
static bool says(const train_error *error, const char *what) { return strstr(error->text, what) != NULL; }

static void each_fails(bool (*call)(train_error *), const char *function, int result, int number, const char *what) {
  long failed = 0;
  for (long nth = 1, made = 1; made >= nth - 1; ++nth) { /* a call that fails makes no more */
    train_error error = {0};
    faults_begin(function, nth, result, number);
    const bool good = call(&error);
    made = faults_end();
    if (!good && (!says(&error, what) || error.exit_code != TRAIN_EXIT_TROUBLE))
      fail_msg("%s, call %ld: \"%s\", must say \"%s\"", function, nth, error.text, what);
    failed += !good;
    if (!is_as_before())
      fail_msg("%s, call %ld: other files are left (%s)", function, nth, good ? "passed" : error.text);
  }
  assert_true((failed > 0) == (*what != 0));
  train_error error = {0};
  tiny_good(call(&error), &error);
}

static void each_call_fails(void **state) {
  (void)state;
  open_run();
  each_fails(load, "memory", 0, ENOMEM, "no memory for ");
  each_fails(load_shards, "memory", 0, ENOMEM, "memory");
  each_fails(load, "pread", -1, EIO, "/run/");
  each_fails(load, "pread", 0, 0, "it became shorter while it was read");
  each_fails(load, "pread", -1, EINTR, "");
  each_fails(load, "fstat", -1, EIO, "it is not a file");
  each_fails(save, "memory", 0, ENOMEM, "no memory for ");
  each_fails(save, "write", -1, EIO, ": Input/output error");
  each_fails(save, "write", 0, 0, ": No space left on device");
  each_fails(save, "write", -1, EINTR, "");
  each_fails(save, "fsync", -1, EINVAL, "");
  each_fails(save, "fsync", -1, EIO, ": Input/output error");
  each_fails(save, "close", -1, EIO, ": Input/output error");
  each_fails(load, "tigon_copy", TIGON_ERROR_DEVICE, 0, "TIGON_ERROR_DEVICE");
  each_fails(load, "tigon_fill", TIGON_ERROR_DEVICE, 0, "TIGON_ERROR_DEVICE");
  each_fails(load_tensors, "pread", -1, EIO, "/run/");
  each_fails(load_weights, "memory", 0, ENOMEM, "memory");
  put(path_of("run/model.safetensors.index.json"), "{}");
  each_fails(load_weights, "pread", -1, EIO, "/run/");
  unlink(path_of("run/model.safetensors.index.json"));
  wrong_states();
  replace_text("history.rate", "history.rats");
  sizes[1] = read_file(path_of("run/optimizer.safetensors"), before[1]);
  older = true;
  each_fails(load, "memory", 0, ENOMEM, "no memory for ");
  close_run();
}

/* ---- files and folders ---- */

/* A path of `bytes` bytes, in parts that a folder may have. */
static const char *long_path(size_t bytes) {
  static char path[2 * TRAIN_PATH];
  assert_true(bytes < sizeof path);
  for (size_t i = 0; i < bytes; ++i) path[i] = i % 100 ? 'a' : '/';
  path[bytes] = 0;
  return path;
}

static void long_paths(void **state) {
  (void)state;
  train_error error = {0};
  train_file file;
  train_checkpoint c;
  train_config config;
  train_shards shards;
  char path[TRAIN_PATH];
  train_options o;
  train_options_init(&o);
  const char *most = long_path(TRAIN_PATH - 1);
  expect(train_path_join(most, "x", path, &error), &error, "the path of x is longer than 4095 bytes");
  expect(train_folder_reserve(most, 1, &error), &error, "the path of space.tmp is longer than 4095 bytes");
  expect(train_config_read(most, &config, &error), &error, "the path of config.json is longer than 4095 bytes");
  expect(train_shards_open(most, &shards, &error), &error, "the path of model.safetensors is longer than 4095 bytes");
  expect(train_checkpoint_open(most, &c, &o, &error), &error,
         "the path of optimizer.safetensors is longer than 4095 bytes");
  expect(train_file_create(most, &file, &error), &error, "cannot write %s: File name too long", most);
  const char *index = long_path(TRAIN_PATH - sizeof "/model.safetensors.index.json" + 1);
  expect(train_shards_open(index, &shards, &error), &error,
         "the path of model.safetensors.index.json is longer than 4095 bytes");
  const char *optimizer = long_path(TRAIN_PATH - sizeof "/model.safetensors.tmp" + 2);
  expect(train_checkpoint_open(optimizer, &c, &o, &error), &error,
         "the path of optimizer.safetensors is longer than 4095 bytes");
  const char *beyond = long_path(TRAIN_PATH);
  expect(train_folder_create(beyond, &error), &error, "cannot write %s: File name too long", beyond);
}

static void folders(void **state) {
  (void)state;
  train_error error = {0};
  train_file file;
  put(path_of("plain"), "x");
  assert_int_equal(symlink("nowhere", path_of("dangling")), 0);
  static const struct {
    const char *path, *says;
  } wrong[] = {{"plain", "Not a directory"},
               {"plain/below", "Not a directory"},
               {"plain/below/it", "Not a directory"},
               {"dangling", "No such file or directory"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    expect(train_folder_create(path_of(wrong[i].path), &error), &error, "cannot write %s: %s", path_of(wrong[i].path),
           wrong[i].says);
  tiny_good(train_folder_create(path_of("new/below"), &error), &error);
  tiny_good(train_folder_create(path_of("new/below"), &error), &error);

  assert_true(train_folder_same(path_of("new"), path_of("new/below/..")));
  assert_false(train_folder_same(path_of("new"), path_of("new/below")));
  assert_false(train_folder_same(path_of("new"), path_of("nowhere")));
  assert_false(train_folder_same(path_of("nowhere"), path_of("new")));
  train_folder_flush(path_of("nowhere"));

  expect(train_file_create(path_of("nowhere/x"), &file, &error), &error, "cannot write %s: No such file or directory",
         path_of("nowhere/x"));
  expect(train_file_commit(path_of("nowhere/x"), &error), &error, "cannot write %s: No such file or directory",
         path_of("nowhere/x"));
  const char *tail = long_path(TRAIN_PATH - 1);
  expect(train_file_create(tail, &file, &error), &error, "cannot write %s: File name too long", tail);
  const char *head = long_path(TRAIN_PATH);
  expect(train_file_create(head, &file, &error), &error, "cannot write %s: File name too long", head);

  /* a file is replaced as a whole, or is as it was */
  static const char *const functions[] = {"write", "fsync", "close", "fsync+close"};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
    faults_begin(functions[i], i == 3 ? -1 : 1, -1, EIO);
    const bool good = train_file_replace(path_of("plain"), "new", 3, &error);
    faults_end();
    expect(good, &error, "cannot write %s: Input/output error", path_of("plain"));
    assert_int_equal(access(path_of("plain.tmp"), F_OK), -1);
    assert_int_equal(read_file(path_of("plain"), now[0]), 1);
  }
  expect(train_file_replace(path_of("nowhere/x"), "new", 3, &error), &error,
         "cannot write %s: No such file or directory", path_of("nowhere/x"));
  expect(train_file_replace(path_of("new"), "new", 3, &error), &error, "cannot write %s: Is a directory",
         path_of("new"));
  tiny_good(train_file_replace(path_of("plain"), "new", 3, &error), &error);
  assert_int_equal(read_file(path_of("plain"), now[0]), 3);
}

static void reserve(void **state) {
  (void)state;
  train_error error = {0};
  expect(train_folder_reserve(path_of("nowhere"), 1, &error), &error, "cannot write %s: No such file or directory",
         path_of("nowhere/space.tmp"));
  static const int numbers[] = {0, EOPNOTSUPP, EINVAL, ENOSPC}; /* some file systems reserve nothing */
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    faults_begin("posix_fallocate", 1, numbers[i], 0);
    const bool good = train_folder_reserve(folder, 3 << 19, &error);
    faults_end();
    if (numbers[i] != ENOSPC)
      tiny_good(good, &error);
    else
      expect(good, &error, "no room in %s for a checkpoint (1.5 MiB): No space left on device", folder);
    assert_int_equal(access(path_of("space.tmp"), F_OK), -1);
  }
}

/* What an index may say that is none. */
static void indexes(void **state) {
  (void)state;
  train_error error = {0};
  tiny_good(train_folder_create(path_of("index"), &error), &error);
  put(path_of("index/broken.safetensors"), "x");
  static const char *const all[][2] = {
      {"{", "its JSON is broken in line 1: "},
      {"[]", "it has no weight_map"},
      {"{}", "it has no weight_map"},
      {"{\"weight_map\":{}}", "it has no weight_map"},
      {"{\"weight_map\":{\"a\":1,\"b\":\"x\"}}", "its weight_map holds something that is no text"},
      {"{\"weight_map\":{\"a\":\"\"}}", "its weight_map names something outside its folder"},
      {"{\"weight_map\":{\"a\":\"../x\"}}", "its weight_map names something outside its folder"},
      {"{\"weight_map\":{\"a\":\"x\"}}", "/index/x is missing, which "},
      {"{\"weight_map\":{\"a\":\"broken.safetensors\"}}", "it has fewer than 8 bytes"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    train_shards shards;
    put(path_of("index/model.safetensors.index.json"), all[i][0]);
    assert_false(train_shards_open(path_of("index"), &shards, &error));
    if (!strstr(error.text, all[i][1])) fail_msg("index %zu: \"%s\" lacks \"%s\"", i, error.text, all[i][1]);
    assert_true(!shards.files && shards.count == 0);
  }
  char text[2 * TRAIN_PATH + 64];
  snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", long_path(TRAIN_PATH - 1));
  for (char *c = text; (c = strchr(c, '/')); ++c) *c = 'a';
  put(path_of("index/model.safetensors.index.json"), text);
  train_shards shards;
  expect(train_shards_open(path_of("nowhere"), &shards, &error), &error, "cannot open %s: No such file or directory",
         path_of("nowhere/model.safetensors"));
  assert_false(train_shards_open(path_of("index"), &shards, &error));
  assert_int_equal(strncmp(error.text, "the path of aaaa", 16), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_call_fails), cmocka_unit_test(long_paths),
                                     cmocka_unit_test(folders), cmocka_unit_test(reserve), cmocka_unit_test(indexes)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
