#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { STAGE = 1 << 16 /* elements that go to the device at once */, ALIGN = 32 /* elements: 64 bytes of bf16 */ };

int64_t train_embedding_index(void) { return 0; }
int64_t train_layer_index(int64_t layer, train_tensor_kind kind) { return 1 + layer * TRAIN_PER_LAYER + kind; }
int64_t train_final_norm_index(const train_config *config) { return 1 + config->layers * TRAIN_PER_LAYER; }
int64_t train_head_index(const train_config *config) {
  return config->tied ? train_embedding_index() : train_final_norm_index(config) + 1;
}

static void describe(train_model *model, int64_t index, int64_t rows, int64_t cols, double deviation) {
  const int64_t count = (rows ? rows : 1) * cols;
  model->tensors[index] =
      (train_tensor){.rows = rows, .cols = cols, .offset = model->elements, .count = count, .deviation = deviation};
  model->elements += (count + ALIGN - 1) / ALIGN * ALIGN;
  model->parameters += count;
}

static void describe_all(train_model *model) {
  const train_config *c = &model->config;
  const double narrow = 0.02 / sqrt(2.0 * (double)c->layers);
  const int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
  describe(model, train_embedding_index(), c->vocab, c->hidden, 0.02);
  for (int64_t l = 0; l < c->layers; ++l) {
    describe(model, train_layer_index(l, TRAIN_INPUT_NORM), 0, c->hidden, 0);
    describe(model, train_layer_index(l, TRAIN_QKV), q_width + 2 * kv_width, c->hidden, 0.02);
    describe(model, train_layer_index(l, TRAIN_O), c->hidden, q_width, narrow);
    describe(model, train_layer_index(l, TRAIN_POST_NORM), 0, c->hidden, 0);
    describe(model, train_layer_index(l, TRAIN_GATE_UP), 2 * c->intermediate, c->hidden, 0.02);
    describe(model, train_layer_index(l, TRAIN_DOWN), c->hidden, c->intermediate, narrow);
  }
  describe(model, train_final_norm_index(c), 0, c->hidden, 0);
  if (!c->tied) describe(model, train_head_index(c), c->vocab, c->hidden, 0.02);
}

/* Radians a position. linear divides all frequencies by its factor. llama3 counts turns in the original context:
 * it divides a frequency with fewer than low_freq_factor, and keeps one with more than high_freq_factor. Between them it
 * goes from one to the other. */
static double frequency(const train_config *c, int64_t i) {
  const double full = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim);
  const train_rope_scaling *s = &c->rope;
  if (s->kind == TRAIN_ROPE_DEFAULT) return full;
  if (s->kind == TRAIN_ROPE_LINEAR) return full / s->factor;
  const double turns = (double)s->original_positions * full / (2 * acos(-1));
  const double kept = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
  const double share = kept < 0 ? 0 : kept > 1 ? 1 : kept;
  return share * full + (1 - share) * full / s->factor;
}

/* cos and sin of position * frequency. */
static bool fill_rope(train_model *model, train_error *error) {
  const train_config *c = &model->config;
  const int64_t half = c->head_dim / 2, count = c->positions * half;
  train_block stage = {0};
  if (!train_host_alloc(model->memory, (size_t)count * 2 * sizeof(float), "the rotary table", &stage, error))
    return false;
  float *cosine = stage.data, *sine = cosine + count;
  for (int64_t t = 0; t < c->positions; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = (double)t * frequency(c, i);
      cosine[t * half + i] = (float)cos(angle);
      sine[t * half + i] = (float)sin(angle);
    }
  }
  const tigon_status status = tigon_copy(model->memory->context, model->rope.data, stage.data, stage.bytes);
  train_host_free(model->memory, &stage);
  return train_ok(model->memory->context, status, error);
}

static bool create(train_memory *memory, const train_config *config, tigon_dtype dtype, bool trains, train_model *model,
                   train_error *error) {
  *model = (train_model){.config = *config, .dtype = dtype, .memory = memory};
  model->tensor_count = train_final_norm_index(config) + (config->tied ? 1 : 2);
  model->tensors = calloc((size_t)model->tensor_count, sizeof *model->tensors);
  if (!model->tensors) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of weights");
  describe_all(model);
  const size_t bytes = (size_t)model->elements * sizeof(float), more = trains ? bytes : 0;
  const size_t rope = (size_t)(config->positions * config->head_dim) * sizeof(float);
  const bool made =
      train_device_alloc(memory, bytes, "the weights", &model->master, error) &&
      (dtype == TIGON_F32 || train_device_alloc(memory, bytes / 2, "the rounded weights", &model->image, error)) &&
      train_device_alloc(memory, more, "the gradients", &model->gradient, error) &&
      train_device_alloc(memory, more, "the first moments", &model->exp_avg, error) &&
      train_device_alloc(memory, more, "the second moments", &model->exp_avg_sq, error) &&
      train_device_alloc(memory, rope, "the rotary table", &model->rope, error) && fill_rope(model, error);
  if (!made) train_model_destroy(model);
  return made;
}

bool train_model_create(train_memory *memory, const train_config *config, tigon_dtype dtype, train_model *model,
                        train_error *error) {
  return create(memory, config, dtype, true, model, error);
}

bool train_model_create_weights(train_memory *memory, const train_config *config, tigon_dtype dtype, train_model *model,
                                train_error *error) {
  return create(memory, config, dtype, false, model, error);
}

void train_model_destroy(train_model *model) {
  if (!model->memory) return;
  train_block *blocks[] = {&model->master,  &model->image,      &model->gradient,
                           &model->exp_avg, &model->exp_avg_sq, &model->rope};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) train_device_free(model->memory, blocks[i]);
  free(model->tensors);
  *model = (train_model){0};
}

static bool zero(train_model *model, train_block *block, train_error *error) {
  return train_ok(model->memory->context, tigon_fill(model->memory->context, block->data, 0, block->bytes), error);
}

/* Draws one tensor's values piece by piece. */
static bool draw(train_model *model, int64_t index, uint64_t seed, float *stage, train_error *error) {
  const train_tensor *tensor = &model->tensors[index];
  const uint64_t stream = (uint64_t)(TRAIN_STREAM_WEIGHTS + index);
  for (int64_t first = 0; first < tensor->count; first += STAGE) {
    const int64_t count = tensor->count - first < STAGE ? tensor->count - first : STAGE;
    for (int64_t i = 0; i < count; ++i)
      stage[i] = tensor->deviation == 0
                     ? 1.0f
                     : (float)(tensor->deviation * train_normal(seed, stream, (uint64_t)(first + i)));
    float *to = (float *)model->master.data + tensor->offset + first;
    if (!train_ok(model->memory->context, tigon_copy(model->memory->context, to, stage, (size_t)count * sizeof(float)),
                  error))
      return false;
  }
  return true;
}

bool train_model_start(train_model *model, uint64_t seed, train_error *error) {
  if (!zero(model, &model->master, error) || !zero(model, &model->exp_avg, error) ||
      !zero(model, &model->exp_avg_sq, error) || !zero(model, &model->gradient, error))
    return false;
  train_block stage = {0};
  if (!train_host_alloc(model->memory, STAGE * sizeof(float), "the first weights", &stage, error)) return false;
  bool drawn = true;
  for (int64_t i = 0; drawn && i < model->tensor_count; ++i) drawn = draw(model, i, seed, stage.data, error);
  train_host_free(model->memory, &stage);
  return drawn && train_model_round(model, error);
}

uint16_t train_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

uint16_t train_to_f16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000), infinity = 0x7c00;
  const float size = fabsf(value);
  if (isnan(value)) return sign | infinity | 0x200;
  if (size >= 65520) return sign | infinity; /* the middle of the largest number and the one that would follow */
  if (size < 0x1p-14f) return sign | (uint16_t)nearbyintf(size * 0x1p24f);
  bits &= 0x7fffffffu;
  return sign | (uint16_t)((bits + 0xfffu + (bits >> 13 & 1) - (112u << 23)) >> 13);
}

float train_from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

bool train_model_round(train_model *model, train_error *error) {
  if (model->dtype == TIGON_F32) return true;
  tigon_context *context = model->memory->context;
  uint16_t (*const round)(float) = model->dtype == TIGON_BF16 ? train_to_bf16 : train_to_f16;
  train_block wide = {0}, narrow = {0};
  bool good = train_host_alloc(model->memory, STAGE * sizeof(float), "rounding the weights", &wide, error) &&
              train_host_alloc(model->memory, STAGE * sizeof(uint16_t), "rounding the weights", &narrow, error);
  for (int64_t first = 0; good && first < model->elements; first += STAGE) {
    const int64_t count = model->elements - first < STAGE ? model->elements - first : STAGE;
    const float *from = (const float *)model->master.data + first;
    uint16_t *to = (uint16_t *)model->image.data + first;
    good = train_ok(context, tigon_copy(context, wide.data, from, (size_t)count * sizeof(float)), error);
    for (int64_t i = 0; good && i < count; ++i) ((uint16_t *)narrow.data)[i] = round(((float *)wide.data)[i]);
    good = good && train_ok(context, tigon_copy(context, to, narrow.data, (size_t)count * sizeof(uint16_t)), error);
  }
  train_host_free(model->memory, &wide);
  train_host_free(model->memory, &narrow);
  return good;
}

static tigon_tensor view(const train_model *model, int64_t index, void *base, tigon_dtype dtype) {
  const train_tensor *t = &model->tensors[index];
  void *data = base ? (char *)base + (size_t)t->offset * tigon_dtype_size(dtype) : NULL;
  return t->rows ? tigon_tensor_2d(data, dtype, t->rows, t->cols) : tigon_tensor_1d(data, dtype, t->cols);
}

tigon_tensor train_weight(const train_model *model, int64_t index) {
  return view(model, index, model->dtype == TIGON_F32 ? model->master.data : model->image.data, model->dtype);
}

tigon_tensor train_master(const train_model *model, int64_t index) {
  return view(model, index, model->master.data, TIGON_F32);
}

tigon_tensor train_gradient(const train_model *model, int64_t index) {
  return view(model, index, model->gradient.data, TIGON_F32);
}

tigon_tensor train_rope_cos(const train_model *model) {
  return tigon_tensor_2d(model->rope.data, TIGON_F32, model->config.positions, model->config.head_dim / 2);
}

tigon_tensor train_rope_sin(const train_model *model) {
  tigon_tensor table = train_rope_cos(model);
  table.data = (float *)model->rope.data + model->config.positions * (model->config.head_dim / 2);
  return table;
}

tigon_tensor train_slice(tigon_tensor tensor, int64_t first, int64_t rows) {
  if (tensor.data)
    tensor.data = (char *)tensor.data + (size_t)(first * tensor.strides[0]) * tigon_dtype_size(tensor.dtype);
  tensor.shape[0] = rows;
  return tensor;
}
