#include "tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>

#include "tokenizer_parts.h"
#include "utf8.h"

/* ---- lists ---- */

bool train_tokens_add(train_tokens *list, int32_t token, train_error *error) {
  if (list->count == list->capacity) {
    const int64_t capacity = 2 * list->capacity + 256;
    int32_t *tokens = realloc(list->tokens, (size_t)capacity * sizeof *tokens);
    if (!tokens) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %lld tokens", (long long)capacity);
    list->tokens = tokens;
    list->capacity = capacity;
  }
  list->tokens[list->count++] = token;
  return true;
}

/* ---- life ---- */

enum { LARGEST_FILE = 1 << 28 /* bytes */ };

/* A whole file in memory of malloc(). `optional`: where it does not exist, *bytes stays NULL. */
static bool read_file(const char *path, bool optional, void **bytes, size_t *count, train_error *error) {
  FILE *file = fopen(path, "rbe");
  struct stat status;
  if (!file && optional && errno == ENOENT) return true;
  if (!file || fstat(fileno(file), &status) != 0) {
    const int number = errno;
    if (file) fclose(file);
    return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(number));
  }
  if (!S_ISREG(status.st_mode) || status.st_size > LARGEST_FILE) {
    fclose(file);
    return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is not a file of at most %d MiB", path, LARGEST_FILE >> 20);
  }
  *bytes = malloc((size_t)status.st_size + 1);
  *count = *bytes ? fread(*bytes, 1, (size_t)status.st_size, file) : 0;
  const bool good = *bytes && !ferror(file);
  fclose(file);
  return good || train_fail(error, TRAIN_EXIT_TROUBLE, "cannot read %s", path);
}

train_tokenizer *train_tokenizer_bytes(train_error *error) {
  train_tokenizer *t = calloc(1, sizeof *t);
  if (t) {
    t->is_bytes = true;
    t->vocab = 256;
    t->spellings = calloc(256, sizeof *t->spellings);
    t->bytes = malloc(256);
    if (t->spellings && t->bytes) {
      for (int i = 0; i < 256; ++i) t->spellings[i] = (train_spelling){i, 1}, t->bytes[i] = (uint8_t)i;
      return t;
    }
  }
  train_tokenizer_close(t);
  train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the tokenizer");
  return NULL;
}

bool train_tokenizer_exists(const char *folder) {
  char path[TRAIN_PATH];
  train_error none;
  return train_path_join(folder, "tokenizer.json", path, &none) && access(path, F_OK) == 0;
}

static bool open_files(train_tokenizer *t, const char *path, train_error *error) {
  struct stat status;
  char config[TRAIN_PATH];
  if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
    if (!train_path_join(path, "tokenizer.json", t->path, error)) return false;
  } else if ((size_t)snprintf(t->path, TRAIN_PATH, "%s", path) >= TRAIN_PATH) {
    return train_fail(error, TRAIN_EXIT_TROUBLE, "the path of the tokenizer is longer than %d bytes", TRAIN_PATH - 1);
  }
  const char *slash = strrchr(t->path, '/');
  const int folder = slash ? (int)(slash - t->path) + 1 : 0;
  if ((size_t)snprintf(config, sizeof config, "%.*stokenizer_config.json", folder, t->path) >= sizeof config)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "the path of the tokenizer is longer than %d bytes", TRAIN_PATH - 1);
  return read_file(t->path, false, &t->file, &t->file_bytes, error) &&
         read_file(config, true, &t->config, &t->config_bytes, error);
}

train_tokenizer *train_tokenizer_open(const char *path, train_error *error) {
  train_tokenizer *t = calloc(1, sizeof *t);
  if (!t) train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the tokenizer");
  if (t && open_files(t, path, error) && train_tokenizer_read(t, error)) return t;
  train_tokenizer_close(t);
  return NULL;
}

void train_tokenizer_close(train_tokenizer *t) {
  if (!t) return;
  train_split_destroy(t->split);
  train_bpe_destroy(&t->bpe);
  json_decref(t->json);
  free(t->file);
  free(t->config);
  free(t->spellings);
  free(t->bytes);
  free(t->added);
  free(t);
}

int64_t train_tokenizer_vocab(const train_tokenizer *t) { return t->vocab; }

const char *train_tokenizer_path(const train_tokenizer *t) { return t->is_bytes ? NULL : t->path; }

const uint8_t *train_tokenizer_text(const train_tokenizer *t, int32_t token, size_t *bytes) {
  *bytes = token >= 0 && token < t->vocab ? (size_t)t->spellings[token].count : 0;
  return *bytes ? t->bytes + t->spellings[token].first : NULL;
}

bool train_tokenizer_save(const train_tokenizer *t, const char *folder, train_error *error) {
  /* transformers would choose its class by the model's type, and change the tokenizer by what it knows of that */
  static const char plain[] =
      "{\n  \"clean_up_tokenization_spaces\": false,\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n";
  char path[TRAIN_PATH], config[TRAIN_PATH];
  if (t->is_bytes) return true;
  return train_path_join(folder, "tokenizer.json", path, error) &&
         train_path_join(folder, "tokenizer_config.json", config, error) &&
         train_file_replace(path, t->file, t->file_bytes, error) &&
         train_file_replace(config, t->config ? t->config : plain, t->config ? t->config_bytes : sizeof plain - 1,
                            error);
}

void train_tokenizer_remove(const char *folder) {
  char path[TRAIN_PATH];
  train_error none;
  if (train_path_join(folder, "tokenizer.json", path, &none)) unlink(path);
  if (train_path_join(folder, "tokenizer_config.json", path, &none)) unlink(path);
}

/* ---- encoding ---- */

typedef struct encoding {
  train_tokenizer *tokenizer;
  train_tokens *tokens;
} encoding;

/* The token of a whole piece, -1 for none. */
static int32_t whole_piece(const train_tokenizer *t, const uint8_t *piece, size_t bytes) {
  enum { LONGEST = 512 /* bytes of a token that is looked for */ };
  char letters[2 * LONGEST];
  size_t used = 0;
  if (!t->whole || bytes > LONGEST) return -1;
  for (size_t i = 0; i < bytes; ++i) used += (size_t)train_byte_letter(piece[i], letters + used);
  const json_t *token = json_object_getn(t->whole, letters, used);
  return token ? (int32_t)json_integer_value(token) : -1;
}

static bool take_piece(void *user, const uint8_t *piece, size_t bytes, train_error *error) {
  const encoding *e = user;
  const int32_t whole = whole_piece(e->tokenizer, piece, bytes);
  if (whole >= 0) return train_tokens_add(e->tokens, whole, error);
  return train_bpe_encode(&e->tokenizer->bpe, piece, bytes, e->tokens, error);
}

/* Bytes of the white space that begins here, 0 for none: Unicode's property White_Space. */
static size_t white_space(const uint8_t *b, size_t count) {
  utf8proc_int32_t c = 0;
  const utf8proc_ssize_t bytes = utf8proc_iterate(b, (utf8proc_ssize_t)count, &c);
  if (bytes <= 0) return 0;
  const bool space = (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
                     (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
                     c == 0x3000;
  return space ? (size_t)bytes : 0;
}

/* The longest added token that begins at `text`; NULL for none. */
static const train_added *added_at(const train_tokenizer *t, bool normalized, const uint8_t *text, size_t bytes) {
  for (int64_t i = t->added_from[*text]; i < t->added_from[*text + 1]; ++i) {
    const train_added *a = &t->added[i];
    if (a->normalized == normalized && a->bytes <= bytes && memcmp(a->text, text, a->bytes) == 0) return a;
  }
  return NULL;
}

/* Where the white space begins that ends at `end`, not before `from`. */
static size_t before_space(const uint8_t *text, size_t from, size_t end) {
  while (end > from) {
    size_t start = end - 1;
    while (start > from && (text[start] & 0xc0) == 0x80) --start;
    if (white_space(text + start, end - start) != end - start) break;
    end = start;
  }
  return end;
}

static bool encode_normalized(encoding *e, const uint8_t *text, size_t bytes, train_error *error) {
  return train_split_run(e->tokenizer->split, text, bytes, take_piece, e, error);
}

static bool encode_added(encoding *e, bool normalized, const uint8_t *text, size_t bytes, train_error *error);

/* Applies the normalizers one after another. */
static bool encode_raw(encoding *e, const uint8_t *text, size_t bytes, train_error *error) {
  const train_tokenizer *t = e->tokenizer;
  uint8_t *changed = NULL;
  for (int i = 0; i < t->normalizer_count; ++i) {
    uint8_t *next = NULL;
    const utf8proc_ssize_t count =
        utf8proc_map(changed ? changed : text, (utf8proc_ssize_t)bytes, &next, (utf8proc_option_t)t->normalizers[i]);
    free(changed);
    if (count < 0)
      return train_fail(error, TRAIN_EXIT_TROUBLE, "the text cannot be normalized: %s", utf8proc_errmsg(count));
    changed = next;
    bytes = (size_t)count;
  }
  const bool good = encode_added(e, true, changed ? changed : text, bytes, error);
  free(changed);
  return good;
}

static bool encode_between(encoding *e, bool normalized, const uint8_t *text, size_t bytes, train_error *error) {
  if (bytes == 0) return true;
  return normalized ? encode_normalized(e, text, bytes, error) : encode_raw(e, text, bytes, error);
}

/* Added tokens of one kind, and what is between them. */
static bool encode_added(encoding *e, bool normalized, const uint8_t *text, size_t bytes, train_error *error) {
  size_t done = 0;
  for (size_t at = 0; at < bytes;) {
    const train_added *a = added_at(e->tokenizer, normalized, text + at, bytes - at);
    if (!a) {
      ++at;
      continue;
    }
    const size_t end = a->eats_before ? before_space(text, done, at) : at;
    if (!encode_between(e, normalized, text + done, end - done, error) || !train_tokens_add(e->tokens, a->token, error))
      return false;
    at += a->bytes;
    for (size_t more = 1; a->eats_behind && at < bytes && more > 0; at += more)
      more = white_space(text + at, bytes - at);
    done = at;
  }
  return encode_between(e, normalized, text + done, bytes - done, error);
}

bool train_tokenizer_encode(train_tokenizer *t, const uint8_t *text, size_t bytes, bool begin, train_tokens *tokens,
                            train_error *error) {
  if (t->is_bytes) {
    for (size_t i = 0; i < bytes; ++i)
      if (!train_tokens_add(tokens, text[i], error)) return false;
    return true;
  }
  for (size_t i = 0; i < bytes;) {
    const size_t length = train_utf8_length(text + i, bytes - i);
    if (length == 0)
      return train_fail(error, TRAIN_EXIT_TROUBLE, "the text is not UTF-8: byte 0x%02x at %zu", text[i], i);
    i += length;
  }
  for (int i = 0; begin && i < t->begin_count; ++i)
    if (!train_tokens_add(tokens, t->begin[i], error)) return false;
  return encode_added(&(encoding){t, tokens}, false, text, bytes, error);
}
