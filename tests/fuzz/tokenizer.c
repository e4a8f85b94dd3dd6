/* tokenizer.json, then a form feed, then a text, which is encoded. Tokens lie within the vocabulary, and each one's bytes are read. */
#include "fuzz/scratch.h"
#include "tokenizer.h"

static volatile uint8_t read_byte;

static void decode(const train_tokenizer *tokenizer, const train_tokens *tokens) {
  for (int64_t i = 0; i < tokens->count; ++i) {
    size_t bytes = 0;
    if (tokens->tokens[i] < 0 || tokens->tokens[i] >= train_tokenizer_vocab(tokenizer)) abort();
    const uint8_t *text = train_tokenizer_text(tokenizer, tokens->tokens[i], &bytes);
    for (size_t k = 0; k < bytes; ++k) read_byte = text[k];
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *feed = size ? memchr(data, '\f', size) : NULL;
  const size_t json = feed ? (size_t)(feed - data) : size;
  const uint8_t *text = feed ? feed + 1 : data;
  const size_t bytes = feed ? size - json - 1 : 0;
  train_error error = {0};
  train_tokenizer *tokenizer = train_tokenizer_open(scratch_put("tokenizer.json", data, json), &error);
  if (!tokenizer) return *error.text ? 0 : (abort(), 0);
  train_tokens tokens = {0};
  if (train_tokenizer_encode(tokenizer, text, bytes, true, &tokens, &error))
    decode(tokenizer, &tokens);
  else if (!*error.text)
    abort();
  free(tokens.tokens);
  train_tokenizer_close(tokenizer);
  return 0;
}
