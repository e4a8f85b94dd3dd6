/* Every value of config.json that is not what the trainer reads: one sentence says which, and what it must be. */
#include <unistd.h>

#include "config_json.h"
#include "tiny.h"

static char folder[] = "/tmp/tigon-configurations-XXXXXX";
static char path[64];

static int setup(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s/config.json", folder);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  unlink(path);
  return rmdir(folder);
}

static bool read_with(const char *key, const char *value, train_config *c, train_error *error) {
  const train_config ours = tiny_config(false);
  json_t *object = train_config_json(&ours);
  assert_non_null(object);
  json_t *part = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
  if (part)
    json_object_set_new(object, key, part);
  else
    json_object_del(object, key);
  assert_int_equal(json_dump_file(object, path, 0), 0);
  json_decref(object);
  return train_config_read(folder, c, error);
}

#define LLAMA3(low, high, original)                                                                                    \
  "{\"rope_theta\":10000,\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":" low ",\"high_freq_factor\":" high \
  ",\"original_max_position_embeddings\":" original "}"
#define EVEN "hidden_size must be an even multiple of num_attention_heads"
#define KIND "rope_type must be default, linear or llama3"
#define BETWEEN(key, most) key " must be a whole number from 1 to " most

static const struct {
  const char *key, *value; /* NULL: it is absent */
  const char *says;        /* NULL: it is read */
} all[] = {
    {"model_type", "\"gpt2\"", "model_type must be llama"},
    {"model_type", "1", "model_type must be llama"},
    {"hidden_act", NULL, "hidden_act must be silu"},
    {"vocab_size", "0", BETWEEN("vocab_size", "16777216")},
    {"vocab_size", "16777217", BETWEEN("vocab_size", "16777216")},
    {"hidden_size", "65537", BETWEEN("hidden_size", "65536")},
    {"hidden_size", "16.0", BETWEEN("hidden_size", "65536")},
    {"hidden_size", "18", EVEN},
    {"hidden_size", "12", EVEN},
    {"intermediate_size", "\"24\"", BETWEEN("intermediate_size", "1048576")},
    {"num_hidden_layers", NULL, BETWEEN("num_hidden_layers", "1024")},
    {"num_attention_heads", "-4", BETWEEN("num_attention_heads", "1024")},
    {"num_key_value_heads", "null", BETWEEN("num_key_value_heads", "1024")},
    {"num_key_value_heads", "3", "num_attention_heads must be a multiple of num_key_value_heads"},
    {"max_position_embeddings", "1048577", BETWEEN("max_position_embeddings", "1048576")},
    {"rms_norm_eps", "-1e-5", "rms_norm_eps must be a number from 0 to 1"},
    {"rms_norm_eps", "1.5", "rms_norm_eps must be a number from 0 to 1"},
    {"rms_norm_eps", "true", "rms_norm_eps must be a number from 0 to 1"},
    {"rms_norm_eps", "1", NULL},
    {"tie_word_embeddings", NULL, "tie_word_embeddings must be true or false"},
    {"tie_word_embeddings", "0", "tie_word_embeddings must be true or false"},
    {"tie_word_embeddings", "true", NULL},
    {"attention_bias", "null", NULL},
    {"attention_bias", NULL, NULL},
    {"mlp_bias", "0", "mlp_bias must be false"},
    {"head_dim", "8", "head_dim must be hidden_size / num_attention_heads"},
    {"rope_scaling", "null", NULL},
    {"rope_scaling", "{}", KIND},
    {"rope_scaling", "{\"rope_type\":1}", KIND},
    {"rope_scaling", "{\"type\":\"linear\"}", "factor must be a number from 1 to 1e+06"},
    {"rope_scaling", "{\"type\":\"linear\",\"factor\":2}", "rope_scaling must be that of rope_parameters"},
    {"rope_scaling", "{\"type\":\"default\"}", NULL},
    {"rope_theta", "1", "rope_theta must be that of rope_parameters"},
    {"rope_theta", NULL, NULL},
    {"rope_parameters", "null", NULL},
    {"rope_parameters", "{}", KIND},
    {"rope_parameters", "{\"rope_type\":\"default\"}", "rope_theta must be a number from 1 to 1e+12"},
    {"rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":0.5}",
     "rope_theta must be a number from 1 to 1e+12"},
    {"rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":10000,\"partial_rotary_factor\":1}", NULL},
    {"rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":10000,\"partial_rotary_factor\":2}",
     "partial_rotary_factor must be 1"},
    {"rope_parameters", LLAMA3("1", "4", "8"), NULL},
    {"rope_parameters", LLAMA3("0", "4", "8"), "low_freq_factor must be a number from 1e-06 to 1e+06"},
    {"rope_parameters", LLAMA3("1", "1e7", "8"), "high_freq_factor must be a number from 1e-06 to 1e+06"},
    {"rope_parameters", LLAMA3("4", "4", "8"), "high_freq_factor must be above low_freq_factor"},
    {"rope_parameters", LLAMA3("1", "4", "0"), BETWEEN("original_max_position_embeddings", "1073741824")},
};

static void values(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    train_config c;
    train_error error = {0};
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s is no usable configuration: %s", path, all[i].says ? all[i].says : "");
    const bool good = read_with(all[i].key, all[i].value, &c, &error);
    if (good != !all[i].says || (!good && strcmp(error.text, sentence) != 0))
      fail_msg("%s = %s: \"%s\", must be \"%s\"", all[i].key, all[i].value ? all[i].value : "", error.text, sentence);
  }
}

/* Both versions' objects must agree in every part. */
static void two_scalings(void **state) {
  (void)state;
  static const char *const others[] = {LLAMA3("2", "4", "8"), LLAMA3("1", "3", "8"), LLAMA3("1", "4", "9"),
                                       "{\"rope_type\":\"linear\",\"factor\":8}"};
  train_config c = tiny_config(false);
  c.rope = (train_rope_scaling){TRAIN_ROPE_LLAMA3, 8, 1, 4, 8};
  for (size_t i = 0; i <= sizeof others / sizeof *others; ++i) {
    train_config read;
    train_error error = {0};
    json_t *object = train_config_json(&c);
    if (i > 0) json_object_set_new(object, "rope_scaling", json_loads(others[i - 1], 0, NULL));
    assert_int_equal(json_dump_file(object, path, 0), 0);
    json_decref(object);
    const bool good = train_config_read(folder, &read, &error);
    assert_true(good == (i == 0));
    if (!good) assert_non_null(strstr(error.text, "rope_scaling must be that of rope_parameters"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(two_scalings)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
