#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { ROWS = 256 /* tokens of a prompt that pass the layers together */ };

static bool all_finite(const float *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!isfinite(values[i])) return false;
  return true;
}

/* Tokens kept by the decoder, and what drawing needs. */
typedef struct writing {
  train_decoder *decoder;
  int32_t *window; /* [positions] the tokens that were fed */
  int64_t used;
  float *logits, *scratch; /* [V], [2 V] */
} writing;

/* Feeds tokens for which the window has room, in pieces that pass the layers together. */
static bool feed_pieces(writing *w, const int32_t *tokens, int64_t count, train_error *error) {
  const int64_t rows = w->decoder->rows;
  memmove(w->window + w->used, tokens, (size_t)count * sizeof *tokens);
  for (int64_t i = 0; i < count; i += rows) {
    const int64_t part = count - i < rows ? count - i : rows;
    if (!train_decoder_feed(w->decoder, w->window + w->used, part, w->used, error)) return false;
    w->used += part;
  }
  return true;
}

/* Feeds tokens behind those in the window. Full, the window first keeps its last half only. */
static bool feed(writing *w, const int32_t *tokens, int64_t count, train_error *error) {
  const int64_t positions = w->decoder->positions, kept = positions / 2;
  while (count > 0) {
    if (w->used == positions) {
      w->used = 0;
      if (!feed_pieces(w, w->window + positions - kept, kept, error)) return false;
    }
    const int64_t part = count < positions - w->used ? count : positions - w->used;
    if (!feed_pieces(w, tokens, part, error)) return false;
    tokens += part;
    count -= part;
  }
  return true;
}

static bool write_text(writing *w, const train_text *text, train_error *error) {
  const int64_t vocab = w->decoder->model->config.vocab;
  if (!feed(w, text->prompt, text->prompt_count, error)) return false;
  for (int64_t i = 0; i < text->count; ++i) {
    if (!train_decoder_logits(w->decoder, w->logits, error)) return false;
    if (!all_finite(w->logits, vocab))
      return train_fail(error, TRAIN_EXIT_FAILED, "the model's logits are not numbers, so no text can be drawn");
    const double u = train_uniform(text->sampling->seed, TRAIN_STREAM_SAMPLE, (uint64_t)(text->prompt_count + i));
    const int32_t token = train_draw(w->logits, vocab, text->sampling, u, w->scratch);
    if (!text->sink(text->user, token)) break;
    if (i + 1 < text->count && !feed(w, &token, 1, error)) return false;
  }
  return true;
}

bool train_write_text(train_decoder *decoder, const train_text *text, train_error *error) {
  const int64_t vocab = decoder->model->config.vocab;
  train_memory *memory = decoder->model->memory;
  train_block window = {0}, logits = {0};
  const bool good = train_host_alloc(memory, (size_t)decoder->positions * sizeof(int32_t), "the tokens of the text",
                                     &window, error) &&
                    train_host_alloc(memory, (size_t)vocab * 3 * sizeof(float), "the logits", &logits, error) &&
                    write_text(&(writing){.decoder = decoder,
                                          .window = window.data,
                                          .logits = logits.data,
                                          .scratch = (float *)logits.data + vocab},
                               text, error);
  train_host_free(memory, &window);
  train_host_free(memory, &logits);
  return good;
}

static bool append(void *user, int32_t token) {
  int32_t **end = user;
  *(*end)++ = token;
  return true;
}

bool train_sample(train_memory *memory, train_model *model, const train_sampling *sampling, const int32_t *prompt,
                  int64_t prompt_count, int64_t count, int32_t *tokens, train_error *error) {
  const int64_t positions = model->config.positions;
  const train_text text = {sampling, prompt, prompt_count, count, append, &tokens};
  train_decoder decoder;
  if (!train_decoder_create(memory, model, positions, positions < ROWS ? positions : ROWS, &decoder, error))
    return false;
  const bool good = train_write_text(&decoder, &text, error);
  train_decoder_destroy(memory, &decoder);
  return good;
}
