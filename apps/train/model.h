/* A Llama model's parameters: one flat allocation a kind of state, with named views into it.
 *
 * The f32 masters are what is trained and saved. With bf16 or f16 compute, `image` holds their rounded copies that the operators
 * read; with f32 it is the masters themselves. Gradients and the two AdamW moments are f32. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "memory.h"

/* How rotary frequencies differ from theta^(-2 i / head_dim), under transformers' names. */
typedef enum train_rope_kind { TRAIN_ROPE_DEFAULT, TRAIN_ROPE_LINEAR, TRAIN_ROPE_LLAMA3 } train_rope_kind;

typedef struct train_rope_scaling {
  train_rope_kind kind;
  double factor;                            /* linear, llama3: >= 1 */
  double low_freq_factor, high_freq_factor; /* llama3: 0 < low < high */
  int64_t original_positions;               /* llama3: the context before it was stretched */
} train_rope_scaling;

typedef struct train_config {
  int64_t vocab, hidden, layers, heads, kv_heads, intermediate;
  int64_t head_dim;  /* hidden / heads */
  int64_t positions; /* the longest sequence */
  double rope_theta, rms_eps;
  train_rope_scaling rope;
  bool tied;
} train_config;

/* The tensors of one layer, in the order of their indices. */
typedef enum train_tensor_kind {
  TRAIN_INPUT_NORM, /* [H] */
  TRAIN_QKV,        /* [(heads + 2 kv_heads) head_dim, H]: q, k, v packed */
  TRAIN_O,          /* [H, heads head_dim] */
  TRAIN_POST_NORM,  /* [H] */
  TRAIN_GATE_UP,    /* [2 I, H]: gate, up packed */
  TRAIN_DOWN,       /* [H, I] */
  TRAIN_PER_LAYER,
} train_tensor_kind;

typedef struct train_tensor {
  int64_t rows, cols; /* rows 0: a vector */
  int64_t offset;     /* elements into every flat buffer */
  int64_t count;      /* elements */
  double deviation;   /* deviation of the first values; 0: all ones */
} train_tensor;

typedef struct train_model {
  train_config config;
  tigon_dtype dtype; /* dtype of `image` and of the activations: f32, bf16 or f16 */
  int64_t tensor_count;
  train_tensor *tensors; /* [tensor_count] */
  int64_t elements;      /* elements of a flat buffer, including padding between tensors */
  int64_t parameters;    /* without padding */
  train_block master, image, gradient, exp_avg, exp_avg_sq;
  train_block rope; /* cos then sin, [positions, head_dim / 2] f32 each */
  train_memory *memory;
} train_model;

/* Index of a tensor. The head is the embedding when they are tied. */
int64_t train_embedding_index(void);
int64_t train_layer_index(int64_t layer, train_tensor_kind kind);
int64_t train_final_norm_index(const train_config *config);
int64_t train_head_index(const train_config *config);

/* Allocates everything and leaves it unset. On failure the model is empty. */
bool train_model_create(train_memory *memory, const train_config *config, tigon_dtype dtype, train_model *model,
                        train_error *error);
/* Without gradients and moments: a model that is only run. */
bool train_model_create_weights(train_memory *memory, const train_config *config, tigon_dtype dtype, train_model *model,
                                train_error *error);
void train_model_destroy(train_model *model);

/* First values: normal with deviation 0.02, the two projections back into the residual stream narrower by
 * sqrt(2 layers), norms 1; moments 0. A pure function of the seed. */
bool train_model_start(train_model *model, uint64_t seed, train_error *error);

/* Rounds the masters into the image, as adamw does, after they were loaded. */
bool train_model_round(train_model *model, train_error *error);

/* Views. The last two are [positions, head_dim / 2]. */
tigon_tensor train_weight(const train_model *model, int64_t index);
tigon_tensor train_master(const train_model *model, int64_t index);
tigon_tensor train_gradient(const train_model *model, int64_t index);
tigon_tensor train_rope_cos(const train_model *model);
tigon_tensor train_rope_sin(const train_model *model);
/* Rows [first, first + rows) of a matrix or elements of a vector. */
tigon_tensor train_slice(tigon_tensor tensor, int64_t first, int64_t rows);

/* To nearest, ties to even; NaN stays NaN. */
uint16_t train_to_bf16(float value);
uint16_t train_to_f16(float value);
float train_from_bf16(uint16_t bits);

#endif
