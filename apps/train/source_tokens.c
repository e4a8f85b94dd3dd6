#include <stdlib.h>

#include "source.h"

bool train_source_encode(train_memory *memory, train_source *source, train_tokenizer *tokenizer, train_error *error) {
  const int width = train_tokenizer_vocab(tokenizer) > 65536 ? 4 : 2;
  train_tokens list = {0};
  train_block packed = {0};
  const bool good = train_tokenizer_encode(tokenizer, source->text.data, (size_t)source->count, false, &list, error) &&
                    train_host_alloc(memory, (size_t)(list.count * width), "the tokens of the text", &packed, error);
  uint8_t *to = packed.data;
  for (int64_t i = 0; good && i < list.count; ++i)
    for (int b = 0; b < width; ++b) *to++ = (uint8_t)((uint32_t)list.tokens[i] >> (8 * b)); /* little endian */
  free(list.tokens);
  if (!good) return false;
  train_host_free(memory, &source->text);
  source->text = packed;
  source->segments[0].bytes = packed.data;
  source->segments[0].count = source->count = list.count;
  source->segments[0].width = width;
  source->is_text = false;
  return true;
}
