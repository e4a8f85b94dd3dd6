/* Text as tokens and back: one token a byte, or the byte-level BPE of a tokenizer.json of Hugging Face (Sennrich, Haddow,
 * Birch 2016, arXiv:1508.07909; Radford and others 2019).
 *
 * Of tokenizer.json these are read: normalizers NFC, NFD, NFKC, NFKD; pre-tokenizers ByteLevel, Split, Digits; the model
 * BPE; decoder ByteLevel; added tokens; the tokens that a TemplateProcessing puts before a text. Anything else is refused
 * by name. Padding and truncation are not applied. */
#ifndef TRAIN_TOKENIZER_H
#define TRAIN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct train_tokenizer train_tokenizer;

/* A list that grows; free(tokens) releases it. */
typedef struct train_tokens {
  int32_t *tokens;
  int64_t count, capacity;
} train_tokens;

/* One token a byte. NULL with the sentence, here and below. */
train_tokenizer *train_tokenizer_bytes(train_error *error);
/* A tokenizer.json, or a folder that holds one. */
train_tokenizer *train_tokenizer_open(const char *path, train_error *error);
void train_tokenizer_close(train_tokenizer *tokenizer);

/* Whether the folder holds a tokenizer.json. */
bool train_tokenizer_exists(const char *folder);

/* The largest token + 1. */
int64_t train_tokenizer_vocab(const train_tokenizer *tokenizer);
/* Where it was read; NULL for bytes. */
const char *train_tokenizer_path(const train_tokenizer *tokenizer);

/* Appends the tokens of a text, which must be UTF-8 unless a token is a byte. `begin`: those of the template before it. */
bool train_tokenizer_encode(train_tokenizer *tokenizer, const uint8_t *text, size_t bytes, bool begin,
                            train_tokens *tokens, train_error *error);

/* A token's bytes, which may be a part of a character; none for special and unknown tokens. */
const uint8_t *train_tokenizer_text(const train_tokenizer *tokenizer, int32_t token, size_t *bytes);

/* Copies tokenizer.json to the folder and, where it has none, a tokenizer_config.json with which transformers loads it. */
bool train_tokenizer_save(const train_tokenizer *tokenizer, const char *folder, train_error *error);

/* Removes both files, of another run's vocabulary. */
void train_tokenizer_remove(const char *folder);

bool train_tokens_add(train_tokens *tokens, int32_t token, train_error *error);

#endif
