#include "data.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "random.h"

/* ---- which files ---- */

enum { MAX_BINS = 4096 };

/* The .bin files of a folder, by name. */
typedef struct bin_list {
  char *paths[MAX_BINS];
  int64_t count;
} bin_list;

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool list_bins(const char *path, bin_list *list, train_error *error) {
  char name[4096];
  list->count = 0;
  DIR *folder = opendir(path);
  if (!folder) return true; /* no folder: the caller opens it as a file */
  bool good = true;
  for (struct dirent *entry; good && (entry = readdir(folder));) {
    if (entry->d_name[0] == '.' || !train_source_is_bin(entry->d_name)) continue;
    if (list->count == MAX_BINS)
      good = train_fail(error, TRAIN_EXIT_TROUBLE, "%s holds over %d .bin files", path, MAX_BINS);
    if (!good || (size_t)snprintf(name, sizeof name, "%s/%s", path, entry->d_name) >= sizeof name) continue;
    list->paths[list->count] = strdup(name);
    if (list->paths[list->count])
      ++list->count;
    else
      good = train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of files");
  }
  closedir(folder);
  qsort(list->paths, (size_t)list->count, sizeof *list->paths, by_text);
  return good;
}

/* Files with "val" in their name are held out, when there are others. */
static bool open_bins(bin_list *list, int width, train_data *data, train_error *error) {
  const char *train[MAX_BINS], *heldout[MAX_BINS];
  int64_t trains = 0, heldouts = 0;
  for (int64_t i = 0; i < list->count; ++i) {
    if (strstr(strrchr(list->paths[i], '/'), "val"))
      heldout[heldouts++] = list->paths[i];
    else
      train[trains++] = list->paths[i];
  }
  if (trains == 0) return train_source_open_bin(heldout, heldouts, width, &data->source, error);
  return train_source_open_bin(train, trains, width, &data->source, error) &&
         (heldouts == 0 || train_source_open_bin(heldout, heldouts, width, &data->heldout_source, error));
}

/* Into data->source, and data->heldout_source when the folder has one. */
static bool open_path(train_memory *memory, const char *path, int width, train_data *data, train_error *error) {
  if (train_source_is_bin(path)) return train_source_open_bin(&path, 1, width, &data->source, error);
  bin_list *list = malloc(sizeof *list);
  if (!list) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of files");
  bool good = list_bins(path, list, error);
  if (good)
    good = list->count > 0 ? open_bins(list, width, data, error)
                           : train_source_open_text(memory, path, &data->source, error);
  for (int64_t i = 0; i < list->count; ++i) free(list->paths[i]);
  free(list);
  return good;
}

static bool open_all(train_memory *memory, const train_options *o, train_data *data, train_error *error) {
  const int width = strcmp(o->token_bits, "32") == 0 ? 4 : 2;
  if (!o->data) return train_source_open_bible(memory, &data->source, error);
  if (!open_path(memory, o->data, width, data, error)) return false;
  if (!o->heldout) return true;
  train_data other = {0};
  train_source_close(memory, &data->heldout_source);
  if (!open_path(memory, o->heldout, width, &other, error)) {
    train_data_close(memory, &other);
    return false;
  }
  train_source_close(memory, &other.heldout_source);
  data->heldout_source = other.source;
  if (other.source.is_text != data->source.is_text)
    return train_fail(error, TRAIN_EXIT_USAGE, "--heldout %s is %s, must be %s as --data is", o->heldout,
                      other.source.is_text ? "text" : "a token file", data->source.is_text ? "text" : "a token file");
  return true;
}

/* ---- split and vocabulary ---- */

static bool split(const train_options *o, train_data *data, train_error *error) {
  const int64_t total = data->source.count, least = o->seq + 1;
  int64_t held = data->heldout_source.count ? 0 : total / 20;
  if (!data->heldout_source.count && held < least) held = least;
  data->train = (train_part){&data->source, 0, total - held};
  data->heldout = (train_part){&data->source, total - held, held};
  if (data->heldout_source.count) data->heldout = (train_part){&data->heldout_source, 0, data->heldout_source.count};
  if (data->train.count < least)
    return train_fail(error, TRAIN_EXIT_TROUBLE,
                      "the data has %" PRId64 " tokens, must have at least %" PRId64 " for --seq %" PRId64, total,
                      held + least, o->seq);
  if (data->heldout.count < least)
    return train_fail(error, TRAIN_EXIT_TROUBLE,
                      "the held-out data has %" PRId64 " tokens, must have at least %" PRId64 " for --seq %" PRId64,
                      data->heldout.count, least, o->seq);
  return true;
}

static bool find_vocab(const train_options *o, const train_tokenizer *tokenizer, train_data *data, train_error *error) {
  if (data->source.is_text) {
    data->vocab = 256;
    if (o->vocab == 0 || o->vocab == 256) return true;
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "the vocabulary is %" PRId64 ", must be 256 for text without --tokenizer", o->vocab);
  }
  if (tokenizer) {
    const int64_t least = train_tokenizer_vocab(tokenizer);
    data->vocab = o->vocab ? o->vocab : least < 2 ? 2 : least;
    if (data->vocab >= least) return true;
    return train_fail(error, TRAIN_EXIT_USAGE, "the vocabulary is %" PRId64 ", must be at least %" PRId64 " as in %s",
                      o->vocab, least, train_tokenizer_path(tokenizer));
  }
  data->vocab = o->vocab;
  if (o->vocab) return true; /* tokens are checked as they are read */
  int32_t largest = 0, other = 0;
  if (!train_source_largest(&data->source, &largest, error) ||
      (data->heldout_source.count && !train_source_largest(&data->heldout_source, &other, error)))
    return false;
  data->vocab = (int64_t)(other > largest ? other : largest) + 1;
  if (data->vocab < 2) data->vocab = 2;
  if (data->vocab <= 1 << 24) return true;
  return train_fail(error, TRAIN_EXIT_TROUBLE,
                    "the data's largest token is %" PRId64 "%s, must be below %d: other --token-bits, or no token file",
                    data->vocab - 1, data->vocab - 1 == INT32_MAX ? " or more" : "", 1 << 24);
}

/* Text becomes tokens where a tokenizer is given. */
static bool encode(train_memory *memory, train_tokenizer *tokenizer, train_data *data, train_error *error) {
  if (!tokenizer || !data->source.is_text) return true;
  return train_source_encode(memory, &data->source, tokenizer, error) &&
         (!data->heldout_source.count || train_source_encode(memory, &data->heldout_source, tokenizer, error));
}

bool train_data_open(train_memory *memory, const train_options *options, train_tokenizer *tokenizer, train_data *data,
                     train_error *error) {
  uint64_t other = 0;
  *data = (train_data){0};
  const bool good = open_all(memory, options, data, error) && encode(memory, tokenizer, data, error) &&
                    split(options, data, error) && find_vocab(options, tokenizer, data, error) &&
                    train_source_digest(&data->source, &data->digest, error) &&
                    (!data->heldout_source.count || train_source_digest(&data->heldout_source, &other, error));
  data->digest = train_mix(data->digest) ^ other;
  if (!good) train_data_close(memory, data);
  return good;
}

void train_data_close(train_memory *memory, train_data *data) {
  train_source_close(memory, &data->source);
  train_source_close(memory, &data->heldout_source);
  *data = (train_data){0};
}

/* ---- tokens ---- */

/* seq + 1 tokens from `start` of a part, as inputs and as what follows them. */
static bool read_sequence(const train_data *data, const train_part *part, int64_t start, int64_t seq, int32_t *tokens,
                          int32_t *labels, train_error *error) {
  const int64_t first = part->first + start;
  if (!train_source_read(part->source, first, seq, tokens, error) ||
      !train_source_read(part->source, first + seq, 1, &labels[seq - 1], error))
    return false;
  memcpy(labels, tokens + 1, (size_t)(seq - 1) * sizeof *labels);
  for (int64_t t = 0; t <= seq; ++t) {
    const int32_t token = t < seq ? tokens[t] : labels[seq - 1];
    if (token >= data->vocab)
      return train_fail(error, TRAIN_EXIT_TROUBLE,
                        "token %" PRId64 " of the data is %" PRId32 ", must be below the vocabulary of %" PRId64,
                        first + t, token, data->vocab);
  }
  return true;
}

bool train_data_batch(const train_data *data, int64_t seed, int64_t step, int64_t batch, int64_t seq, int64_t first,
                      int64_t count, int32_t *tokens, int32_t *labels, train_error *error) {
  const uint64_t starts = (uint64_t)(data->train.count - seq);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t number = (uint64_t)(step * batch + first + i);
    const uint64_t start = train_random((uint64_t)seed, TRAIN_STREAM_BATCH, number) % starts;
    if (!read_sequence(data, &data->train, (int64_t)start, seq, tokens + i * seq, labels + i * seq, error))
      return false;
  }
  return true;
}

int64_t train_data_windows(const train_data *data, int64_t seq) { return (data->heldout.count - 1) / seq; }

bool train_data_window(const train_data *data, int64_t seq, int64_t window, int32_t *tokens, int32_t *labels,
                       train_error *error) {
  return read_sequence(data, &data->heldout, window * seq, seq, tokens, labels, error);
}
