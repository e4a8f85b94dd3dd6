/* Checkpoints: everything comes back bit for bit, a killed save is finished, a hostile or foreign one is refused. */
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "config_json.h"
#include "folder.h"
#include "pieces.h"
#include "tiny.h"

static char *path_in(const char *sub, const char *name) {
  char both[128];
  snprintf(both, sizeof both, "%s%s%s", sub, *name ? "/" : "", name);
  return path_of(both);
}

/* Numbers in every buffer that differ from each other and from `salt` to `salt`. */
static void fill(tiny *t, int salt) {
  float *buffers[] = {t->model.master.data, t->model.exp_avg.data, t->model.exp_avg_sq.data};
  for (int b = 0; b < 3; ++b)
    for (int64_t i = 0; i < t->model.tensor_count; ++i)
      for (int64_t j = 0; j < t->model.tensors[i].count; ++j)
        buffers[b][t->model.tensors[i].offset + j] =
            (float)train_normal((uint64_t)(salt + b), (uint64_t)i, (uint64_t)j);
}

static void options_for_tiny(train_options *o, bool tied) {
  const train_config c = tiny_config(tied);
  train_options_init(o);
  o->vocab = c.vocab, o->layers = c.layers, o->hidden = c.hidden, o->heads = c.heads, o->kv_heads = c.kv_heads;
  o->intermediate = c.intermediate, o->seq = c.positions, o->tie = tied, o->warmup = 3, o->lr = 0.1 + 0.2;
}

static void save(const char *sub, bool tied, int salt, int64_t step) {
  tiny t;
  train_options o;
  train_history h = {0};
  options_for_tiny(&o, tied);
  tiny_open(&t, TIGON_F32, tied, true);
  fill(&t, salt);
  for (int64_t s = 1; s <= step; ++s)
    tiny_good(train_history_add(&h, 1.0f / (float)(s + salt), 0.5f, &t.error), &t.error);
  tiny_good(train_history_add_eval(&h, step, 2.5f, &t.error), &t.error);
  tiny_good(train_folder_create(path_in(sub, ""), &t.error), &t.error);
  const train_progress p = {.step = step, .digest = 0xfeedfacecafebeefu, .options = &o, .history = &h};
  tiny_good(train_checkpoint_save(path_in(sub, ""), &t.model, &p, &t.error), &t.error);
  train_history_free(&h);
  tiny_close(&t);
}

static void round_trip(void **state) {
  (void)state;
  for (int tied = 0; tied < 2; ++tied) {
    save("a", tied, 20, 5);
    tiny t, want;
    train_options o;
    train_checkpoint c;
    train_history h = {0};
    train_options_init(&o);
    tiny_open(&t, TIGON_BF16, tied, true);
    tiny_open(&want, TIGON_F32, tied, true);
    fill(&want, 20);
    tiny_good(train_checkpoint_open(path_in("a", ""), &c, &o, &t.error), &t.error);
    assert_int_equal(c.step, 5);
    assert_true(c.digest == 0xfeedfacecafebeefu);
    assert_int_equal(o.hidden, 16);
    assert_int_equal(o.warmup, 3);
    assert_int_equal(o.tie, tied);
    assert_true(o.lr == 0.1 + 0.2);
    tiny_good(train_checkpoint_load(&c, &t.model, &h, &t.error), &t.error);
    assert_int_equal(h.steps, 5);
    assert_true(h.loss[4] == 1.0f / 25 && h.evals == 1 && h.eval_step[0] == 5 && h.eval_loss[0] == 2.5f);
    for (int64_t i = 0; i < t.model.tensor_count; ++i) {
      const int64_t offset = t.model.tensors[i].offset;
      const size_t bytes = (size_t)t.model.tensors[i].count * sizeof(float);
      assert_memory_equal((float *)t.model.master.data + offset, (float *)want.model.master.data + offset, bytes);
      assert_memory_equal((float *)t.model.exp_avg.data + offset, (float *)want.model.exp_avg.data + offset, bytes);
      assert_memory_equal((float *)t.model.exp_avg_sq.data + offset, (float *)want.model.exp_avg_sq.data + offset,
                          bytes);
      for (int64_t j = 0; j < t.model.tensors[i].count; ++j)
        assert_int_equal(((uint16_t *)t.model.image.data)[offset + j],
                         train_to_bf16(((float *)want.model.master.data)[offset + j]));
    }
    train_history_free(&h);
    train_checkpoint_close(&c);
    tiny_close(&t);
    tiny_close(&want);
  }
}

static void names(void **state) {
  (void)state;
  save("n", false, 1, 1);
  train_safetensors file;
  train_error error;
  tiny_good(train_safetensors_open(path_in("n", "model.safetensors"), &file, &error), &error);
  assert_int_equal(file.count, 2 * 9 + 3);
  static const struct {
    const char *name;
    int64_t rows, cols;
  } some[] = {{"model.embed_tokens.weight", 19, 16},
              {"model.layers.1.self_attn.q_proj.weight", 16, 16},
              {"model.layers.1.self_attn.k_proj.weight", 8, 16},
              {"model.layers.0.self_attn.v_proj.weight", 8, 16},
              {"model.layers.0.self_attn.o_proj.weight", 16, 16},
              {"model.layers.0.mlp.gate_proj.weight", 24, 16},
              {"model.layers.1.mlp.up_proj.weight", 24, 16},
              {"model.layers.1.mlp.down_proj.weight", 16, 24},
              {"lm_head.weight", 19, 16}};
  for (size_t i = 0; i < sizeof some / sizeof *some; ++i) {
    const int64_t shape[2] = {some[i].rows, some[i].cols};
    if (!train_safetensors_expect(&file, some[i].name, "F32", 2, shape, &error)) fail_msg("%s", error.text);
  }
  const int64_t wide[1] = {16};
  assert_non_null(train_safetensors_expect(&file, "model.layers.1.input_layernorm.weight", "F32", 1, wide, &error));
  assert_non_null(
      train_safetensors_expect(&file, "model.layers.0.post_attention_layernorm.weight", "F32", 1, wide, &error));
  assert_non_null(train_safetensors_expect(&file, "model.norm.weight", "F32", 1, wide, &error));
  assert_string_equal(train_safetensors_metadata(&file, "format"), "pt");
  train_safetensors_close(&file);
}

static int64_t opened_step(const char *sub, train_error *error) {
  train_options o;
  train_checkpoint c;
  train_options_init(&o);
  if (!train_checkpoint_open(path_in(sub, ""), &c, &o, error)) return -1;
  const int64_t step = c.step;
  train_checkpoint_close(&c);
  return step;
}

static void move(const char *from, const char *to) { assert_int_equal(rename(from, to), 0); }

/* Every f16 number is its own image, the middle of two goes to the even one, and what is too large becomes infinite. */
static void f16(void **state) {
  (void)state;
  for (int bits = 0; bits < 0x7c00; ++bits) {
    const int exponent = bits >> 10;
    const float value = exponent ? ldexpf((float)(1024 + bits % 1024), exponent - 25) : ldexpf((float)bits, -24);
    assert_int_equal(train_to_f16(value), bits);
    assert_int_equal(train_to_f16(-value), bits | 0x8000);
    const float next = (bits + 1) >> 10 ? ldexpf((float)(1024 + (bits + 1) % 1024), ((bits + 1) >> 10) - 25)
                                        : ldexpf((float)(bits + 1), -24);
    const float middle = 0.5f * (value + next);
    assert_int_equal(train_to_f16(middle), bits + bits % 2);
    assert_int_equal(train_to_f16(nextafterf(middle, 0)), bits);
    assert_int_equal(train_to_f16(nextafterf(middle, INFINITY)), bits + 1);
  }
  assert_int_equal(train_to_f16(INFINITY), 0x7c00);
  assert_int_equal(train_to_f16(1e30f), 0x7c00);
  assert_true((train_to_f16(NAN) & 0x7fff) > 0x7c00);
}

/* A kill after each of the renames of a save. */
static void killed_between_renames(void **state) {
  (void)state;
  static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json"};
  train_error error = {0};
  for (int renamed = 0; renamed <= 3; ++renamed) {
    save("old", false, 1, 4);
    save("new", false, 2, 6);
    for (int i = 0; i < 3; ++i) {
      char name[64];
      snprintf(name, sizeof name, "%s%s", files[i], i < renamed ? "" : ".tmp");
      move(path_in("new", files[i]), path_in("old", name));
    }
    assert_int_equal(opened_step("old", &error), renamed == 0 ? 4 : 6);
    unlink(path_in("old", "model.safetensors.tmp"));
  }
}

/* Cut anywhere, a file of the checkpoint is refused by a sentence and nothing is changed. */
static void truncated(void **state) {
  (void)state;
  static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json"};
  for (int i = 0; i < 3; ++i) {
    for (int part = 0; part < 8; ++part) {
      train_error error = {0};
      struct stat status;
      save("cut", false, 1, 4);
      assert_int_equal(stat(path_in("cut", files[i]), &status), 0);
      assert_int_equal(truncate(path_in("cut", files[i]), status.st_size * part / 8), 0);
      assert_int_equal(opened_step("cut", &error), -1);
      assert_non_null(strstr(error.text, files[i]));
      assert_int_equal(error.exit_code, TRAIN_EXIT_TROUBLE);
    }
  }
}

static void put(const char *path, const char *text) {
  FILE *file = fopen(path, "wb");
  fputs(text, file);
  fclose(file);
}

/* The beginning of tiny_config() as transformers 5.17 writes it, and what may follow. */
#define THEIRS                                                                                                     \
  "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_size\":16," \
  "\"intermediate_size\":24,\"max_position_embeddings\":8,\"num_attention_heads\":4,\"num_hidden_layers\":2,"      \
  "\"num_key_value_heads\":2,\"pad_token_id\":null,\"rms_norm_eps\":1e-06,\"vocab_size\":19"
#define UNTIED ",\"tie_word_embeddings\":false"
#define SCALED(kind, factor) \
  ",\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"" kind "\",\"factor\":" factor "}"
#define LLAMA3(low, high, original) \
  "\"low_freq_factor\":" low ",\"high_freq_factor\":" high ",\"original_max_position_embeddings\":" original
#define ROPE ",\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"}"

/* Element i of every tensor of a file that another program wrote is number i % NUMBERS. */
enum { NUMBERS = 7 };
typedef struct kind {
  const char *dtype;
  size_t bytes;
  uint32_t stored[NUMBERS]; /* little-endian, in `bytes` */
  float value[NUMBERS];
} kind;

static const kind kinds[] = {
    {"F32",
     4,
     {0, 0x80000000, 1, 0x3f800000, 0xc0490fdb, 0x7f7fffff, 0xff800000},
     {0, -0.0f, 0x1p-149f, 1, -0x1.921fb6p1f, 0x1.fffffep127f, -INFINITY}},
    {"BF16",
     2,
     {0, 0x8000, 1, 0x3f80, 0xc049, 0x7f7f, 0xff80},
     {0, -0.0f, 0x1p-133f, 1, -3.140625f, 0x1.fep127f, -INFINITY}},
    {"F16",
     2,
     {0, 0x8000, 1, 0x0400, 0xb555, 0x7bff, 0xfc00},
     {0, -0.0f, 0x1p-24f, 0x1p-14f, -0x1.554p-2f, 65504, -INFINITY}},
};

static const kind zeros = {"F32", 4, {0}, {0}};

static bool fill_kind(void *user, int64_t index, int64_t first, int64_t count, void *to, train_error *error) {
  const kind *k = user;
  (void)index;
  (void)error;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = first + i, bytes = (int64_t)k->bytes;
    ((uint8_t *)to)[i] = (uint8_t)(k->stored[at / bytes % NUMBERS] >> (8 * (at % bytes)));
  }
  return true;
}

/* A folder as transformers leaves it: no optimizer.safetensors, no metadata of ours. */
static void save_theirs(const char *sub, bool tied, const kind *k) {
  train_safetensors ours;
  train_error error;
  save(sub, tied, 1, 4);
  const char *path = path_in(sub, "model.safetensors");
  tiny_good(train_safetensors_open(path, &ours, &error), &error);
  for (int64_t i = 0; i < ours.count; ++i) ours.tensors[i].dtype = k->dtype;
  json_t *metadata = json_pack("{s:s}", "format", "pt");
  tiny_good(train_safetensors_write(path, ours.tensors, ours.count, metadata, fill_kind, (void *)k, &error), &error);
  tiny_good(train_file_commit(path, &error), &error);
  json_decref(metadata);
  train_safetensors_close(&ours);
  assert_int_equal(unlink(path_in(sub, "optimizer.safetensors")), 0);
  put(path_in(sub, "config.json"), tied ? THEIRS ROPE ",\"tie_word_embeddings\":true}" : THEIRS ROPE UNTIED "}");
}

static void is_theirs(const train_model *model, const kind *k) {
  train_piece pieces[2 * 9 + 3];
  train_pieces(model, pieces);
  for (int64_t p = 0; p < train_piece_count(&model->config); ++p)
    for (int64_t i = 0; i < (pieces[p].rows ? pieces[p].rows : 1) * pieces[p].cols; ++i)
      assert_memory_equal((float *)model->master.data + pieces[p].offset + i, &k->value[i % NUMBERS], sizeof(float));
  for (int64_t i = 0; i < model->elements; ++i)
    assert_true(((float *)model->exp_avg.data)[i] == 0 && ((float *)model->exp_avg_sq.data)[i] == 0);
}

static void weights_of_transformers(void **state) {
  (void)state;
  for (int tied = 0; tied < 2; ++tied) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
      tiny t;
      train_options o;
      train_checkpoint c;
      train_history h = {0};
      save_theirs("t", tied, &kinds[i]);
      train_options_init(&o);
      tiny_open(&t, TIGON_F32, tied, true);
      fill(&t, 3);
      tiny_good(train_checkpoint_open(path_in("t", ""), &c, &o, &t.error), &t.error);
      assert_true(c.weights_only && c.step == 0 && o.tie == (bool)tied);
      assert_true(o.rms_eps == 1e-6 && o.rope_theta == 5e5 && o.seq == 8);
      tiny_good(train_checkpoint_load(&c, &t.model, &h, &t.error), &t.error);
      is_theirs(&t.model, &kinds[i]);
      assert_int_equal(h.steps + h.evals, 0);
      train_history_free(&h);
      train_checkpoint_close(&c);
      tiny_close(&t);
    }
  }
}

/* Sequences may become shorter, not longer. */
static void sequences_of_transformers(void **state) {
  (void)state;
  train_options o;
  train_checkpoint c;
  train_error error;
  save_theirs("s", false, &kinds[0]);
  train_options_init(&o);
  o.given = UINT64_C(1) << train_option_find("seq");
  o.seq = 4;
  tiny_good(train_checkpoint_open(path_in("s", ""), &c, &o, &error), &error);
  assert_int_equal(o.seq, 4);
  train_checkpoint_close(&c);
  o.seq = 9;
  assert_false(train_checkpoint_open(path_in("s", ""), &c, &o, &error));
  assert_string_equal(error.text, "--seq is 9, must be at most 8 as in the checkpoint");
}

/* Half of a checkpoint of ours is none of theirs. */
static void half_is_missing(void **state) {
  (void)state;
  train_error error;
  save("g", false, 1, 4);
  assert_int_equal(unlink(path_in("g", "optimizer.safetensors")), 0);
  assert_int_equal(opened_step("g", &error), -1);
  assert_non_null(strstr(error.text, "g/optimizer.safetensors: No such file or directory"));

  save("g", false, 1, 4);
  save_theirs("t", false, &kinds[0]);
  move(path_in("t", "model.safetensors"), path_in("g", "model.safetensors"));
  assert_int_equal(opened_step("g", &error), -1);
  assert_non_null(strstr(error.text, "is not of the same save as model.safetensors"));
}

/* Both versions' forms of a scaled rope are read, and what is written is read back. */
static void scaled_rope(void **state) {
  (void)state;
  static const char older[] = THEIRS UNTIED
      ",\"rope_theta\":5e5,\"rope_scaling\":{\"factor\":8," LLAMA3("1", "4", "4") ",\"rope_type\":\"llama3\"}}";
  static const struct {
    const char *text;
    train_rope_scaling want;
  } all[] = {
      {older, {TRAIN_ROPE_LLAMA3, 8, 1, 4, 4}},
      {THEIRS UNTIED SCALED("llama3", "32.0," LLAMA3("1.5", "4.0", "8192")) "}", {TRAIN_ROPE_LLAMA3, 32, 1.5, 4, 8192}},
      {THEIRS UNTIED SCALED("linear", "2.5") "}", {TRAIN_ROPE_LINEAR, 2.5, 0, 0, 0}},
      {THEIRS UNTIED ",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
       {TRAIN_ROPE_LINEAR, 2, 0, 0, 0}},
      {THEIRS UNTIED ROPE "}", {TRAIN_ROPE_DEFAULT, 0, 0, 0, 0}},
  };
  train_error error;
  tiny_good(train_folder_create(path_in("rope", ""), &error), &error);
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    const train_rope_scaling *want = &all[i].want;
    put(path_in("rope", "config.json"), all[i].text);
    for (int again = 0; again < 2; ++again) {
      train_config c;
      tiny_good(train_config_read(path_in("rope", ""), &c, &error), &error);
      assert_true(c.rope.kind == want->kind && c.rope.factor == want->factor && c.rope_theta == 5e5);
      assert_true(c.rope.low_freq_factor == want->low_freq_factor && c.rope.high_freq_factor == want->high_freq_factor);
      assert_int_equal(c.rope.original_positions, want->original_positions);
      json_t *written = train_config_json(&c);
      assert_true((json_object_get(written, "rope_scaling") != NULL) == (want->kind != TRAIN_ROPE_DEFAULT));
      assert_int_equal(json_dump_file(written, path_in("rope", "config.json"), 0), 0);
      json_decref(written);
    }
  }
}

static void refuses(void **state) {
  (void)state;
  train_error error = {0};
  train_options o;
  train_checkpoint c;
  assert_int_equal(opened_step("nowhere", &error), -1);
  assert_non_null(strstr(error.text, "nowhere/config.json: No such file or directory"));

  save("h", false, 1, 4);
  train_options_init(&o);
  o.hidden = 64;
  o.given = UINT64_C(1) << train_option_find("hidden");
  assert_false(train_checkpoint_open(path_in("h", ""), &c, &o, &error));
  assert_string_equal(error.text, "--hidden is 64, must be 16 as in the checkpoint");
  assert_int_equal(error.exit_code, TRAIN_EXIT_USAGE);

  save("other", false, 9, 7); /* belongs to another save */
  move(path_in("other", "optimizer.safetensors"), path_in("h", "optimizer.safetensors"));
  assert_int_equal(opened_step("h", &error), -1);
  assert_non_null(strstr(error.text, "is not of the same save as model.safetensors"));

  static const char *const configs[][2] = {
      {"{}", "model_type must be llama"},
      {"[1]", "the JSON must be an object"},
      {"{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"vocab_size\":-3}", "vocab_size must be a whole number"},
      {"{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"vocab_size\":1e99}", "vocab_size must be a whole number"},
      {"{\"model_type\":\"llama\",\"hidden_act\":\"gelu\"}", "hidden_act must be silu"},
      {"{\"model_type\": nul", "its JSON is broken in line 1"},
      {THEIRS UNTIED "}", "rope_theta must be a number from 1 to 1e+12"},
      {THEIRS ",\"rope_parameters\":[5e5]}", "rope_type must be default, linear or llama3"},
      {THEIRS SCALED("yarn", "8") "}", "rope_type is \"yarn\", must be default, linear or llama3"},
      {THEIRS SCALED("dynamic", "8") "}", "rope_type is \"dynamic\", must be default, linear or llama3"},
      {THEIRS SCALED("longrope", "8") "}", "rope_type is \"longrope\", must be default, linear or llama3"},
      {THEIRS SCALED("linear", "0.5") "}", "factor must be a number from 1 to 1e+06"},
      {THEIRS SCALED("llama3", "8") "}", "low_freq_factor must be a number"},
      {THEIRS SCALED("llama3", "8," LLAMA3("4", "4", "8")) "}", "high_freq_factor must be above low_freq_factor"},
      {THEIRS SCALED("llama3", "8," LLAMA3("1", "4", "null")) "}", "original_max_position_embeddings must be a whole"},
      {THEIRS SCALED("linear", "8") ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
       "rope_scaling must be that of rope_parameters"},
      {THEIRS SCALED("linear", "8,\"partial_rotary_factor\":0.5") "}", "partial_rotary_factor must be 1"},
      {THEIRS ",\"rope_parameters\":{\"rope_type\":\"default\"}}", "rope_theta must be a number from 1 to 1e+12"},
      {THEIRS ROPE ",\"rope_theta\":1e4}", "rope_theta must be that of rope_parameters"},
      {THEIRS ROPE UNTIED ",\"attention_bias\":true}", "attention_bias must be false"},
      {THEIRS ROPE UNTIED ",\"mlp_bias\":true}", "mlp_bias must be false"},
      {THEIRS ROPE UNTIED ",\"rope_scaling\":{\"factor\":2}}", "rope_type must be default, linear or llama3"},
      {THEIRS ROPE UNTIED ",\"head_dim\":8}", "head_dim must be hidden_size / num_attention_heads"},
  };
  for (size_t i = 0; i < sizeof configs / sizeof *configs; ++i) {
    put(path_in("h", "config.json"), configs[i][0]);
    assert_int_equal(opened_step("h", &error), -1);
    if (!strstr(error.text, configs[i][1])) fail_msg("\"%s\" lacks \"%s\"", error.text, configs[i][1]);
  }
}

/* A model of another shape than the checkpoint's tensors. */
static void wrong_shape(void **state) {
  (void)state;
  tiny t;
  train_options o;
  train_checkpoint c;
  train_history h = {0};
  save("w", false, 1, 2);
  tiny_open(&t, TIGON_F32, false, true);
  train_options_init(&o);
  tiny_good(train_checkpoint_open(path_in("w", ""), &c, &o, &t.error), &t.error);
  t.model.tensors[1].cols = 17; /* the first norm */
  assert_false(train_checkpoint_load(&c, &t.model, &h, &t.error));
  assert_non_null(strstr(t.error.text, "\"model.layers.0.input_layernorm.weight\" is F32 with 1 dimensions and 64 "
                                       "bytes, must be F32 [17]"));
  train_history_free(&h);
  train_checkpoint_close(&c);
  tiny_close(&t);
}

/* The optimizer's file again, with one change. The metadata's `key` becomes `value`, or is gone. Or the tensor `key` gets another name
 * and shape. All numbers become 0. */
typedef struct change {
  const char *key, *value;
  const char *renamed; /* a tensor's, with its shape */
  int ndim;
  int64_t shape[2];
  const char *says; /* NULL: it is read */
} change;

static void rewrite(const change *with) {
  train_safetensors old;
  train_error error;
  const char *path = path_in("c", "optimizer.safetensors");
  tiny_good(train_safetensors_open(path, &old, &error), &error);
  json_t *metadata = json_deep_copy(json_object_get(old.header, "__metadata__"));
  if (!with->renamed && with->value) json_object_set_new(metadata, with->key, json_string(with->value));
  if (!with->renamed && !with->value) json_object_del(metadata, with->key);
  for (int64_t i = 0; i < old.count; ++i) {
    if (!with->renamed || strcmp(old.tensors[i].name, with->key) != 0) continue;
    old.tensors[i].name = with->renamed, old.tensors[i].ndim = with->ndim;
    memcpy(old.tensors[i].shape, with->shape, sizeof with->shape);
  }
  tiny_good(train_safetensors_write(path, old.tensors, old.count, metadata, fill_kind, (void *)&zeros, &error), &error);
  tiny_good(train_file_commit(path, &error), &error);
  json_decref(metadata);
  train_safetensors_close(&old);
}

/* Opens and loads it, with 4 steps and one evaluation. */
static bool opens(tiny *t, train_history *h, train_error *error) {
  train_options o;
  train_checkpoint c;
  train_options_init(&o);
  if (!train_checkpoint_open(path_in("c", ""), &c, &o, error)) return false;
  const bool good = train_checkpoint_load(&c, &t->model, h, error);
  train_checkpoint_close(&c);
  return good;
}

#define LENGTH "its step is no whole number from 0 to 1000000000"
#define LACKS "its metadata lack step, data_digest or pair"
static const change changes[] = {
    {.key = "step", .says = LACKS},
    {.key = "data_digest", .says = LACKS},
    {.key = "pair", .says = LACKS},
    {.key = "pair", .value = "other", .says = "it is not of the same save as model.safetensors"},
    {.key = "step", .value = "", .says = LENGTH},
    {.key = "step", .value = "4x", .says = LENGTH},
    {.key = "step", .value = "-1", .says = LENGTH},
    {.key = "step", .value = "1000000001", .says = LENGTH},
    {.key = "data_digest", .value = "", .says = "its data_digest is no hexadecimal number"},
    {.key = "data_digest", .value = "1z", .says = "its data_digest is no hexadecimal number"},
    {.key = "option.lr", .value = "fast", .says = "is no usable checkpoint: option."},
    {.key = "option.lr"},
    {.key = "step", .value = "5", .says = "its lists of losses do not fit its step"},
    {"history.loss", NULL, "lost", 1, {4}, "tensor \"history.loss\" is missing"},
    {"history.loss", NULL, "history.loss", 2, {2, 2}, "tensor \"history.loss\" is F32 with 2 dimensions"},
    {"history.eval_step", NULL, "lost", 1, {1}, "tensor \"history.eval_step\" is missing"},
    {"history.eval_loss", NULL, "lost", 1, {1}, "tensor \"history.eval_loss\" is missing"},
    {"history.eval_loss", NULL, "history.eval_loss", 1, {2}, "its lists of losses do not fit its step"},
    {"history.rate", NULL, "history.rate", 1, {3}, "its lists of losses and rates differ in length"},
    {"history.rate", NULL, "history.rate", 2, {2, 2}, "tensor \"history.rate\" is F32 with 2 dimensions"},
    {"history.rate", NULL, "lost", 1, {4}, NULL},
    {"exp_avg.model.norm.weight", NULL, "lost", 1, {16}, "tensor \"exp_avg.model.norm.weight\" is missing"},
    {"exp_avg_sq.model.norm.weight", NULL, "lost", 1, {16}, "tensor \"exp_avg_sq.model.norm.weight\" is missing"},
};

static void changed_optimizer(void **state) {
  (void)state;
  tiny t;
  tiny_open(&t, TIGON_F32, false, true);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; ++i) {
    train_history h = {0};
    train_error error = {0};
    save("c", false, 1, 4);
    rewrite(&changes[i]);
    const bool good = opens(&t, &h, &error);
    if (good != !changes[i].says || (!good && !strstr(error.text, changes[i].says)))
      fail_msg("change %zu (%s): \"%s\", must be \"%s\"", i, changes[i].key, error.text,
               changes[i].says ? changes[i].says : "");
    if (good && changes[i].renamed) assert_true(isnan(h.rate[0]) && isnan(h.rate[3])); /* as older versions left it */
    train_history_free(&h);
  }
  tiny_close(&t);
}

/* Options that are given, and differ from the checkpoint's or do not. */
static void given_options(void **state) {
  (void)state;
  static const struct {
    const char *name, *text, *says; /* says NULL: it is as in the checkpoint */
  } all[] = {{"hidden", "16", NULL},
             {"rms-eps", "1e-5", NULL},
             {"rms-eps", "1e-4", "--rms-eps is 0.0001, must be 1e-05 as in the checkpoint"},
             {"rope-theta", "5e5", "--rope-theta is 500000, must be 10000 as in the checkpoint"},
             {"seq", "8", NULL},
             {"seq", "4", "--seq is 4, must be 8 as in the checkpoint"},
             {"lr", "0.5", NULL}};
  train_error error = {0};
  for (int tied = 0; tied < 2; ++tied) {
    train_options o;
    train_checkpoint c;
    save("o", tied, 1, 4);
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
      train_options_init(&o);
      tiny_good(train_option_set(&o, train_option_find(all[i].name), all[i].text, "--", &error), &error);
      o.given = UINT64_C(1) << train_option_find(all[i].name);
      const bool good = train_checkpoint_open(path_in("o", ""), &c, &o, &error);
      if (good != !all[i].says || (!good && strcmp(error.text, all[i].says) != 0)) fail_msg("\"%s\"", error.text);
      if (good) train_checkpoint_close(&c);
    }
    for (int given = 0; given < 2; ++given) {
      train_options_init(&o);
      o.given = UINT64_C(1) << train_option_find("tie"), o.tie = given;
      const bool good = train_checkpoint_open(path_in("o", ""), &c, &o, &error);
      assert_true(good == (given == tied));
      if (good) train_checkpoint_close(&c);
      if (!good)
        assert_string_equal(error.text, given ? "--tie is given, but the checkpoint's head is not tied"
                                              : "--no-tie is given, but the checkpoint's head is tied");
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip),
                                     cmocka_unit_test(names),
                                     cmocka_unit_test(f16),
                                     cmocka_unit_test(killed_between_renames),
                                     cmocka_unit_test(truncated),
                                     cmocka_unit_test(weights_of_transformers),
                                     cmocka_unit_test(sequences_of_transformers),
                                     cmocka_unit_test(half_is_missing),
                                     cmocka_unit_test(scaled_rope),
                                     cmocka_unit_test(refuses),
                                     cmocka_unit_test(wrong_shape),
                                     cmocka_unit_test(changed_optimizer),
                                     cmocka_unit_test(given_options)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
