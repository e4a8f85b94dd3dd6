/* A token file: the first byte chooses the width of a bare file's tokens. All tokens are read twice: together and one by one. */
#include "fuzz/scratch.h"
#include "source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  const int widths[] = {1, 2, 4};
  const char *path = scratch_put("tokens.bin", data + 1, size - 1);
  train_source source;
  train_error error = {0};
  if (!train_source_open_bin(&path, 1, widths[*data % 3], &source, &error)) return *error.text ? 0 : (abort(), 0);
  int32_t *tokens = malloc((size_t)source.count * sizeof *tokens + 1), one, largest, most = INT32_MIN;
  uint64_t digest;
  if (!tokens || source.count > (int64_t)size) abort();
  if (train_source_read(&source, 0, source.count, tokens, &error)) {
    for (int64_t i = 0; i < source.count; ++i) {
      if (!train_source_read(&source, i, 1, &one, &error) || one != tokens[i]) abort();
      if (one > most) most = one;
    }
    if (!train_source_largest(&source, &largest, &error) || (source.count && largest != most)) abort();
    if (!train_source_digest(&source, &digest, &error)) abort();
  } else if (!*error.text) {
    abort();
  }
  free(tokens);
  train_source_close(NULL, &source);
  return 0;
}
