#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule.h"

#define AT(field) offsetof(train_options, field)
#define GROUP(title) \
  { NULL, TRAIN_FLAG, TRAIN_USE_HERE, 0, 0, 0, NULL, NULL, title, NULL }

/* clang-format off */
const train_option_row train_option_rows[] = {
  {"config", TRAIN_TEXT, TRAIN_USE_HERE, AT(config), 0, 0, NULL, NULL, "FILE",
   "Take options from the run.json of a run, or from a JSON file like it; options of the command line win"},
  GROUP("Data:"),
  {"data", TRAIN_TEXT, TRAIN_USE_SAVED, AT(data), 0, 0, NULL, NULL, "PATH",
   "A UTF-8 text file, a folder of them, a token file (.bin) or a folder of those; default: the King James Bible"},
  {"heldout", TRAIN_TEXT, TRAIN_USE_SAVED, AT(heldout), 0, 0, NULL, NULL, "PATH",
   "Held-out data of its own; default: the last twentieth of the data, or the .bin files with \"val\" in their name"},
  {"token-bits", TRAIN_CHOICE, TRAIN_USE_SAVED, AT(token_bits), 0, 0, "16", "16 32", "16|32",
   "Bits of a token in a .bin without a header; default 16"},
  {"tokenizer", TRAIN_TEXT, TRAIN_USE_RUN, AT(tokenizer), 0, 0, NULL, NULL, "FILE",
   "Read text by this tokenizer.json (byte-level BPE), and keep a copy in --out; default: that of --resume or --init-from, else bytes"},
  {"vocab", TRAIN_WHOLE, TRAIN_USE_MODEL, AT(vocab), 2, 1 << 24, NULL, NULL, "N",
   "Vocabulary; default: --tokenizer's, else the largest token of a .bin + 1. Bytes of text: always 256"},
  GROUP("Model:"),
  {"layers", TRAIN_WHOLE, TRAIN_USE_MODEL, AT(layers), 1, 1024, "4", NULL, "N", "Layers; default 4"},
  {"hidden", TRAIN_WHOLE, TRAIN_USE_MODEL, AT(hidden), 2, 65536, "128", NULL, "N", "Width of the model; default 128"},
  {"heads", TRAIN_WHOLE, TRAIN_USE_MODEL, AT(heads), 1, 1024, "4", NULL, "N", "Query heads; default 4"},
  {"kv-heads", TRAIN_WHOLE, TRAIN_USE_MODEL, AT(kv_heads), 1, 1024, NULL, NULL, "N",
   "Key and value heads; default: half the query heads"},
  {"intermediate", TRAIN_WHOLE, TRAIN_USE_MODEL, AT(intermediate), 1, 1 << 20, NULL, NULL, "N",
   "Width of the MLP; default: 8/3 of the model's, rounded up to a multiple of 32"},
  {"seq", TRAIN_WHOLE, TRAIN_USE_MODEL, AT(seq), 1, 1 << 20, "256", NULL, "N", "Tokens a sequence; default 256"},
  {"rope-theta", TRAIN_REAL, TRAIN_USE_MODEL, AT(rope_theta), 1, 1e12, "10000", NULL, "X",
   "Base of the rotary positions; default 10000"},
  {"rms-eps", TRAIN_REAL, TRAIN_USE_MODEL, AT(rms_eps), 0, 1, "1e-5", NULL, "X",
   "Added to the mean square in RMSNorm; default 1e-5"},
  {"tie", TRAIN_FLAG, TRAIN_USE_MODEL, AT(tie), 0, 0, NULL, NULL, NULL, "The head shares the embedding's weights"},
  GROUP("Training:"),
  {"steps", TRAIN_WHOLE, TRAIN_USE_SAVED, AT(steps), 0, 1e9, "800", NULL, "N", "Steps of the optimiser; default 800"},
  {"batch", TRAIN_WHOLE, TRAIN_USE_SAVED, AT(batch), 1, 1 << 20, "8", NULL, "N",
   "Sequences a step, over all ranks and micro-batches; default 8"},
  {"accumulate", TRAIN_WHOLE, TRAIN_USE_SAVED, AT(accumulate), 1, 1 << 20, "1", NULL, "N",
   "Micro-batches that a rank makes of its part of a step: less memory, the same step; default 1"},
  {"lr", TRAIN_REAL, TRAIN_USE_SAVED, AT(lr), 0, 1e6, "0.003", NULL, "X", "Peak learning rate; default 0.003"},
  {"lr-floor", TRAIN_REAL, TRAIN_USE_SAVED, AT(lr_floor), 0, 1, "0.1", NULL, "X",
   "Part of --lr that the schedule ends at, except with constant; default 0.1"},
  {"schedule", TRAIN_CHOICE, TRAIN_USE_SAVED, AT(schedule), 0, 0, "cosine", "cosine linear constant wsd", "cosine|linear|constant|wsd",
   "How the rate falls behind the warm-up: cosine, linear, constant (not at all), or wsd (constant, then linear over the "
   "last steps); default cosine"},
  {"decay-fraction", TRAIN_REAL, TRAIN_USE_SAVED, AT(decay_fraction), 0, 1, "0.2", NULL, "X",
   "wsd: part of --steps, at their end, in which the rate falls; default 0.2"},
  {"warmup", TRAIN_WHOLE, TRAIN_USE_SAVED, AT(warmup), 0, 1e9, NULL, NULL, "N",
   "Steps of linear warm-up; default: a tenth of --steps, at most 100"},
  {"weight-decay", TRAIN_REAL, TRAIN_USE_SAVED, AT(weight_decay), 0, 1e6, "0.1", NULL, "X",
   "AdamW's, on matrices; default 0.1"},
  {"beta1", TRAIN_REAL, TRAIN_USE_SAVED, AT(beta1), 0, 0.999999, "0.9", NULL, "X", "AdamW's; default 0.9"},
  {"beta2", TRAIN_REAL, TRAIN_USE_SAVED, AT(beta2), 0, 0.999999, "0.95", NULL, "X", "AdamW's; default 0.95"},
  {"clip", TRAIN_REAL, TRAIN_USE_SAVED, AT(clip), 0, 1e9, "1", NULL, "X",
   "Largest norm of the gradient, 0 for no clipping; default 1"},
  {"dtype", TRAIN_CHOICE, TRAIN_USE_SAVED, AT(dtype), 0, 0, "f32", "f32 bf16 f16", "f32|bf16|f16",
   "What activations are computed in; the weights' masters stay f32; f16 scales the loss; default f32"},
  {"init-scale", TRAIN_REAL, TRAIN_USE_SAVED, AT(init_scale), 1, 1e9, "65536", NULL, "X",
   "f16: the first scale of the loss; default 65536"},
  {"growth-factor", TRAIN_REAL, TRAIN_USE_SAVED, AT(growth_factor), 1, 1e3, "2", NULL, "X",
   "f16: what the scale is multiplied by after --growth-interval good steps; default 2"},
  {"backoff-factor", TRAIN_REAL, TRAIN_USE_SAVED, AT(backoff_factor), 0.001, 0.999, "0.5", NULL, "X",
   "f16: what the scale is multiplied by after a step whose gradients overflow, which is skipped; default 0.5"},
  {"growth-interval", TRAIN_WHOLE, TRAIN_USE_SAVED, AT(growth_interval), 1, 1e9, "2000", NULL, "N",
   "f16: good steps in a row until the scale grows; default 2000"},
  {"seed", TRAIN_WHOLE, TRAIN_USE_SAVED, AT(seed), 0, 9e15, "1", NULL, "N",
   "Of the first weights and the order of the data; default 1"},
  GROUP("Output:"),
  {"out", TRAIN_TEXT, TRAIN_USE_HERE, AT(out), 0, 0, NULL, NULL, "DIR",
   "Where the checkpoint and the curve go; default: tigon-run, or the first free of tigon-run-2, -3, ..."},
  {"overwrite", TRAIN_FLAG, TRAIN_USE_HERE, AT(overwrite), 0, 0, NULL, NULL, NULL,
   "Let --out replace the checkpoint of another run"},
  {"resume", TRAIN_TEXT, TRAIN_USE_HERE, AT(resume), 0, 0, NULL, NULL, "DIR",
   "Go on from a checkpoint, with its options where no others are given, or from a Llama that transformers saved"},
  {"init-from", TRAIN_TEXT, TRAIN_USE_SAVED, AT(init_from), 0, 0, NULL, NULL, "DIR",
   "Begin at step 0 with weights and tokenizer of a Llama, of ours or of transformers, and nothing else of it: no "
   "moments, no options, no step. The folder stays as it is"},
  {"checkpoint-every", TRAIN_WHOLE, TRAIN_USE_SAVED, AT(checkpoint_every), 0, 1e9, "200", NULL, "N",
   "Steps between checkpoints, 0 for one at the end; default 200"},
  {"eval-every", TRAIN_WHOLE, TRAIN_USE_SAVED, AT(eval_every), 0, 1e9, "100", NULL, "N",
   "Steps between held-out losses (on 64 windows; the last one is on up to 1024), 0 for one at the end; default 100"},
  {"keep-best", TRAIN_FLAG, TRAIN_USE_SAVED, AT(keep_best), 0, 0, NULL, NULL, NULL,
   "Save the checkpoint with the lowest held-out loss in best/ of --out, too"},
  {"log-every", TRAIN_WHOLE, TRAIN_USE_RUN, AT(log_every), 1, 1e9, "10", NULL, "N",
   "Steps between two lines of progress; default 10"},
  {"peak-tflops", TRAIN_REAL, TRAIN_USE_RUN, AT(peak_tflops), 0, 1e6, "0", NULL, "X",
   "What the device can do in --dtype, in TFLOP/s, if that is not known: progress and metrics have the part of it that the model uses (MFU)"},
  {"sample", TRAIN_WHOLE, TRAIN_USE_RUN, AT(sample), 0, 1e6, "300", NULL, "N",
   "Tokens of generated text to show at the end, 0 for none; default 300"},
  {"prompt", TRAIN_TEXT, TRAIN_USE_RUN, AT(prompt), 0, 0, NULL, NULL, "TEXT",
   "What the generated text begins with; default: the first bytes of the held-out data"},
  {"temperature", TRAIN_REAL, TRAIN_USE_RUN, AT(temperature), 0, 100, "0.8", NULL, "X",
   "Of the generated text, 0 for the likeliest token each time; default 0.8"},
  {"top-k", TRAIN_WHOLE, TRAIN_USE_RUN, AT(top_k), 0, 1 << 24, "40", NULL, "N",
   "Draw from the likeliest N tokens, 0 for all; default 40"},
  {"svg", TRAIN_TEXT, TRAIN_USE_HERE, AT(svg), 0, 0, NULL, NULL, "FILE",
   "Where the loss curve is drawn; default: loss.svg in --out"},
  {"compare", TRAIN_FLAG, TRAIN_USE_RUN, AT(compare), 0, 0, NULL, NULL, NULL,
   "Do every step with unfused operators too: loss, speed and memory of both. No checkpoint unless --out is given"},
  {"apart", TRAIN_FLAG, TRAIN_USE_RUN, AT(apart), 0, 0, NULL, NULL, NULL,
   "With --compare: let both runs keep their own weights; without it each step of both begins from the same ones"},
  {"json", TRAIN_FLAG, TRAIN_USE_HERE, AT(json), 0, 0, NULL, NULL, NULL, "One JSON object a line, see docs/cli.md"},
  {"quiet", TRAIN_FLAG, TRAIN_USE_HERE, AT(quiet), 0, 0, NULL, NULL, NULL, "No progress and no notes, only results"},
  GROUP("Device:"),
  {"device", TRAIN_TEXT, TRAIN_USE_RUN, AT(device), 0, 0, "cpu", NULL, "DEVICE",
   "As `tigon devices' lists them; default cpu"},
  {"variant", TRAIN_TEXT, TRAIN_USE_RUN, AT(variant), 0, 0, NULL, NULL, "VARIANT",
   "Instruction set of the kernels, as `tigon list' names them; default: the best"},
  {"threads", TRAIN_WHOLE, TRAIN_USE_RUN, AT(threads), 0, 4096, NULL, NULL, "N",
   "CPU threads; default: OMP_NUM_THREADS, else all cores"},
};
/* clang-format on */

const int train_option_count = sizeof train_option_rows / sizeof *train_option_rows;

int train_option_find(const char *name) {
  for (int i = 0; i < train_option_count; ++i)
    if (train_option_rows[i].name && strcmp(train_option_rows[i].name, name) == 0) return i;
  return -1;
}

bool train_option_given(const train_options *options, const char *name) {
  const int index = train_option_find(name);
  return index >= 0 && (options->given >> index & 1);
}

/* `text` as one of the words of `choices`; NULL when it is none. The returned pointer is `text` itself. */
static const char *choose(const char *text, const char *choices) {
  const size_t length = strlen(text);
  for (const char *word = choices; *word; word += strspn(word, " ")) {
    const size_t size = strcspn(word, " ");
    if (size == length && memcmp(word, text, size) == 0) return text;
    word += size;
  }
  return NULL;
}

bool train_option_refuse(int index, const char *origin, const char *shown, train_error *error) {
  const train_option_row *row = &train_option_rows[index];
  char must[128] = "text that is not empty, or null";
  switch (row->kind) {
    case TRAIN_WHOLE: snprintf(must, sizeof must, "a whole number from %.0f to %.0f", row->low, row->high); break;
    case TRAIN_REAL: snprintf(must, sizeof must, "a number from %g to %g", row->low, row->high); break;
    case TRAIN_CHOICE: snprintf(must, sizeof must, "one of: %s", row->choices); break;
    case TRAIN_TEXT: break;
    case TRAIN_FLAG: strcpy(must, "true or false"); break;
  }
  return train_fail(error, TRAIN_EXIT_USAGE, "%s%s is %.200s, must be %s", origin, row->name, shown, must);
}

/* Whether the text is a value of the row, which the field then has. */
static bool parse(const train_option_row *row, const char *text, void *field) {
  char *end = NULL;
  errno = 0;
  switch (row->kind) {
    case TRAIN_WHOLE: {
      const long long value = strtoll(text, &end, 10);
      if (end == text || *end || errno || (double)value < row->low || (double)value > row->high) return false;
      *(int64_t *)field = value;
      return true;
    }
    case TRAIN_REAL: {
      const double value = strtod(text, &end);
      if (end == text || *end || !isfinite(value) || value < row->low || value > row->high) return false;
      *(double *)field = value;
      return true;
    }
    case TRAIN_CHOICE:
      if (!choose(text, row->choices)) return false;
      *(const char **)field = text;
      return true;
    case TRAIN_TEXT: *(const char **)field = text; return true;
    case TRAIN_FLAG: *(bool *)field = strcmp(text, "0") != 0; return true;
  }
  return false;
}

bool train_option_set(train_options *options, int index, const char *text, const char *origin, train_error *error) {
  char shown[256];
  if (parse(&train_option_rows[index], text, (char *)options + train_option_rows[index].offset)) return true;
  snprintf(shown, sizeof shown, "\"%.200s\"", text);
  return train_option_refuse(index, origin, shown, error);
}

void train_option_text(const train_options *options, int index, char *text, size_t bytes) {
  const train_option_row *row = &train_option_rows[index];
  const char *field = (const char *)options + row->offset;
  switch (row->kind) {
    case TRAIN_WHOLE: snprintf(text, bytes, "%" PRId64, *(const int64_t *)(const void *)field); return;
    case TRAIN_REAL: snprintf(text, bytes, "%.17g", *(const double *)(const void *)field); return;
    case TRAIN_FLAG: snprintf(text, bytes, "%d", *(const bool *)field); return;
    case TRAIN_CHOICE:
    case TRAIN_TEXT: {
      const char *value = *(const char *const *)(const void *)field;
      snprintf(text, bytes, "%s", value ? value : "");
      return;
    }
  }
}

void train_options_init(train_options *options) {
  train_error none;
  *options = (train_options){.warmup = -1};
  for (int i = 0; i < train_option_count; ++i)
    if (train_option_rows[i].value) train_option_set(options, i, train_option_rows[i].value, "", &none);
}

static bool check_model(const train_options *o, train_error *error) {
  if (o->hidden % o->heads != 0)
    return train_fail(error, TRAIN_EXIT_USAGE, "--hidden is %" PRId64 ", must be a multiple of --heads (%" PRId64 ")",
                      o->hidden, o->heads);
  if (o->hidden / o->heads % 2 != 0)
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "--hidden / --heads is %" PRId64 ", must be even (rotary positions turn pairs)",
                      o->hidden / o->heads);
  if (o->heads % o->kv_heads != 0)
    return train_fail(error, TRAIN_EXIT_USAGE, "--heads is %" PRId64 ", must be a multiple of --kv-heads (%" PRId64 ")",
                      o->heads, o->kv_heads);
  return true;
}

static bool check_run(const train_options *o, int ranks, train_error *error) {
  const int64_t pieces = ranks * o->accumulate;
  if (o->batch % pieces != 0)
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "--batch is %" PRId64 ", must be a multiple of %" PRId64 " (%d rank%s x --accumulate %" PRId64
                      ")",
                      o->batch, pieces, ranks, ranks == 1 ? "" : "s", o->accumulate);
  if (o->warmup > o->steps)
    return train_fail(error, TRAIN_EXIT_USAGE, "--warmup is %" PRId64 ", must be at most --steps (%" PRId64 ")",
                      o->warmup, o->steps);
  if (strcmp(o->schedule, "wsd") == 0 && o->warmup + train_decay_steps(o) > o->steps)
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "--warmup is %" PRId64 ", must be at most %" PRId64 ": --decay-fraction %g of --steps %" PRId64
                      " leaves no more",
                      o->warmup, o->steps - train_decay_steps(o), o->decay_fraction, o->steps);
  if (o->keep_best && o->eval_every == 0)
    return train_fail(error, TRAIN_EXIT_USAGE, "--keep-best goes by held-out losses, so --eval-every must be above 0");
  if (o->compare && strcmp(o->dtype, "f16") == 0)
    return train_fail(error, TRAIN_EXIT_USAGE, "--compare has no f16: its --dtype must be f32 or bf16");
  if (o->compare && ranks > 1)
    return train_fail(error, TRAIN_EXIT_USAGE, "--compare measures one process, so it cannot be used with mpirun");
  if (o->apart && !o->compare) return train_fail(error, TRAIN_EXIT_USAGE, "--apart is given without --compare");
  if (o->heldout && !o->data) return train_fail(error, TRAIN_EXIT_USAGE, "--heldout is given without --data");
  return true;
}

bool train_options_resolve(train_options *o, int ranks, train_error *error) {
  if (o->data && !*o->data) o->data = NULL;
  if (o->heldout && !*o->heldout) o->heldout = NULL;
  if (o->init_from && !*o->init_from) o->init_from = NULL;
  if (o->kv_heads == 0) o->kv_heads = o->heads % 2 == 0 ? o->heads / 2 : o->heads;
  if (o->intermediate == 0) o->intermediate = (8 * o->hidden / 3 + 31) / 32 * 32;
  if (o->warmup < 0) o->warmup = o->steps / 10 < 100 ? o->steps / 10 : 100;
  return check_model(o, error) && check_run(o, ranks, error);
}
