/* tigon eval: the loss of a checkpoint on a text. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../train/evaluate.h"
#include "../train/source.h"
#include "cli.h"
#include "term.h"

static const char text[] =
    "Say how well a trained model predicts a text: the mean loss of its tokens, perplexity and bits per byte.\n"
    "\n"
    "CHECKPOINT is a folder of `tigon train', or a Llama that transformers saved, as `tigon generate' takes it. The text "
    "is a UTF-8 file, a folder of them, or a file of tokens (.bin) as `tigon tokenize' writes it. Every token but the "
    "first is counted once."
    "\v"
    "Examples:\n"
    "  tigon eval tigon-run --data notes.txt\n"
    "  tigon eval SmolLM2-135M --data notes.txt --device cuda --dtype bf16 --context 4096 --stride 2048\n"
    "\n"
    "A text longer than the context is read in windows of --context tokens, which begin --stride tokens apart. A window "
    "counts only what no window before it has counted. So by default windows lie side by side and a token sees half a "
    "context on average; a smaller stride lets every token see at least context - stride tokens, and takes context / "
    "stride times as long.\n"
    "\n"
    "Perplexity is e to the loss, and depends on the tokenizer. Bits per byte do not: they are the loss of all tokens over "
    "the bytes of the text. A file of tokens needs no tokenizer, but without one they are not known.\n"
    "\n"
    "Exit status: 0 done; 1 the loss is not a number; 2 the command line is wrong; 3 a device or a file failed.";

enum { KEY_DATA = 256, KEY_CONTEXT, KEY_STRIDE, KEY_BITS, KEY_TOKENIZER, KEY_JSON, KEY_DEVICE, KEY_DTYPE, KEY_THREADS };

static const struct argp_option options[] = {
    {"data", KEY_DATA, "FILE", 0, "The text: a UTF-8 file, a folder of them, or a .bin of tokens", 0},
    {"token-bits", KEY_BITS, "16|32", 0, "Width of tokens in a .bin without llm.c's header; default 16", 0},
    {"context", KEY_CONTEXT, "N", 0, "Tokens of a window; default: the longest sequence of the model, at most 4096", 0},
    {"stride", KEY_STRIDE, "N", 0, "Tokens from one window to the next; default: --context", 0},
    {"tokenizer", KEY_TOKENIZER, "FILE", 0, "A tokenizer.json in place of the checkpoint's", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object, see docs/cli.md", 0},
    {"device", KEY_DEVICE, "DEVICE", 0, "As `tigon devices' lists them; default cpu", 0},
    {"dtype", KEY_DTYPE, "f32|bf16", 0, "What is computed in; default f32", 0},
    {"threads", KEY_THREADS, "N", 0, "CPU threads; default: OMP_NUM_THREADS, else all cores", 0},
    {0}};

typedef struct evaluating {
  const char *command, *data;
  train_reader_options open;
  train_reader reader;
  train_evaluation result;
  int token_bytes;
  bool json;
} evaluating;

static error_t parse(int key, char *argument, struct argp_state *state) {
  evaluating *e = state->input;
  switch (key) {
    case KEY_DATA: e->data = argument; return 0;
    case KEY_CONTEXT: e->result.context = cli_number(e->command, "--context", argument, 1, 1 << 20); return 0;
    case KEY_STRIDE: e->result.stride = cli_number(e->command, "--stride", argument, 1, 1 << 20); return 0;
    case KEY_BITS:
      if (strcmp(argument, "16") != 0 && strcmp(argument, "32") != 0)
        cli_mistake(e->command, "--token-bits is \"%s\", must be 16 or 32", argument);
      e->token_bytes = argument[0] == '1' ? 2 : 4;
      return 0;
    case KEY_TOKENIZER: e->open.tokenizer = argument; return 0;
    case KEY_JSON: e->json = true; return 0;
    case KEY_DEVICE: e->open.device = argument; return 0;
    case KEY_DTYPE:
      if (strcmp(argument, "f32") != 0 && strcmp(argument, "bf16") != 0)
        cli_mistake(e->command, "--dtype is \"%s\", must be f32 or bf16", argument);
      e->open.dtype = argument;
      return 0;
    case KEY_THREADS: e->open.threads = (int)cli_number(e->command, "--threads", argument, 0, 4096); return 0;
    case ARGP_KEY_ARG:
      if (e->open.folder) cli_mistake(e->command, "takes one checkpoint, but got \"%s\" too", argument);
      e->open.folder = argument;
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void progress(int64_t done, int64_t total) { term_progress(done, total, "windows"); }

/* Sets context and stride where they were not given. */
static bool choose_windows(evaluating *e, train_error *error) {
  enum { LARGEST_DEFAULT = 4096 };
  const int64_t positions = e->reader.model.config.positions;
  train_evaluation *r = &e->result;
  if (r->context == 0) r->context = positions < LARGEST_DEFAULT ? positions : LARGEST_DEFAULT;
  if (r->stride == 0) r->stride = r->context;
  if (r->context > positions)
    return train_fail(error, TRAIN_EXIT_USAGE,
                      "--context is %" PRId64 ", must be at most %" PRId64 ", the model's longest sequence", r->context,
                      positions);
  return r->stride <= r->context ||
         train_fail(error, TRAIN_EXIT_USAGE, "--stride is %" PRId64 ", must be at most %" PRId64 ", the context",
                    r->stride, r->context);
}

/* `bytes` of the counted tokens; -1: not known. */
static void print(const evaluating *e, int64_t bytes, double seconds) {
  const train_evaluation *r = &e->result;
  const double bits = r->loss * (double)r->tokens / log(2) / (double)bytes;
  char speed[TERM_NUMBER];
  if (e->json) {
    cli_print_json(json_pack("{s:f, s:f, s:o, s:I, s:o, s:I, s:I, s:I, s:f}", "loss", r->loss, "perplexity",
                             exp(r->loss), "bits_per_byte", bytes > 0 ? json_real(bits) : json_null(), "tokens",
                             (json_int_t)r->tokens, "bytes", bytes < 0 ? json_null() : json_integer(bytes), "windows",
                             (json_int_t)r->windows, "context", (json_int_t)r->context, "stride", (json_int_t)r->stride,
                             "tokens_per_s", (double)r->tokens / seconds));
    return;
  }
  printf("loss           %.4f nats a token\n", r->loss);
  printf("perplexity     %.4g\n", exp(r->loss));
  if (bytes > 0) printf("bits per byte  %.4f\n", bits);
  printf("tokens         %" PRId64, r->tokens);
  if (bytes >= 0) printf(" of %" PRId64 " bytes", bytes);
  printf(", in %" PRId64 " windows of up to %" PRId64 ", %" PRId64 " apart\n", r->windows, r->context, r->stride);
  printf("speed          %s tokens/s\n", term_digits(speed, (double)r->tokens / seconds));
}

/* A token file as it is, within the model's vocabulary. */
static bool read_tokens(const evaluating *e, const train_source *source, train_tokens *tokens, train_error *error) {
  const int64_t vocab = e->reader.model.config.vocab;
  tokens->tokens = malloc((size_t)(source->count + 1) * sizeof *tokens->tokens);
  if (!tokens->tokens) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the tokens of %s", e->data);
  tokens->count = source->count;
  if (!train_source_read(source, 0, source->count, tokens->tokens, error)) return false;
  for (int64_t i = 0; i < tokens->count; ++i)
    if (tokens->tokens[i] >= vocab)
      return train_fail(error, TRAIN_EXIT_TROUBLE,
                        "token %" PRId64 " of %s is %" PRId32 ", must be below the model's vocabulary of %" PRId64, i,
                        e->data, tokens->tokens[i], vocab);
  return true;
}

/* Bytes of all tokens but the first: of a text what it has, of a token file what its tokens spell. */
static int64_t counted_bytes(const evaluating *e, const train_source *source, const train_tokens *tokens) {
  size_t first = 0, one = 0;
  int64_t bytes = 0;
  if (!e->reader.tokenizer) return -1;
  if (!e->open.tokens_only) {
    train_tokenizer_text(e->reader.tokenizer, tokens->tokens[0], &first);
    return source->count - (int64_t)first;
  }
  for (int64_t i = 1; i < tokens->count; ++i, bytes += (int64_t)one)
    train_tokenizer_text(e->reader.tokenizer, tokens->tokens[i], &one);
  return bytes;
}

static bool run(evaluating *e, train_error *error) {
  train_memory memory = {0};
  train_source source = {0};
  train_tokens tokens = {0};
  const bool bin = e->open.tokens_only = train_source_is_bin(e->data);
  bool good = (bin ? train_source_open_bin(&e->data, 1, e->token_bytes, &source, error)
                   : train_source_open_text(&memory, e->data, &source, error)) &&
              train_reader_open(&e->open, &e->reader, error);
  if (good && source.note[0]) cli_say(e->command, source.note);
  good = good && choose_windows(e, error) &&
         (bin ? read_tokens(e, &source, &tokens, error)
              : train_tokenizer_encode(e->reader.tokenizer, source.text.data, (size_t)source.count, true, &tokens,
                                       error)) &&
         (tokens.count >= 2 || train_fail(error, TRAIN_EXIT_TROUBLE, "%s has %" PRId64 " token%s, must have at least 2",
                                          e->data, tokens.count, tokens.count == 1 ? "" : "s"));
  const double start = now();
  good = good && train_evaluate(&e->reader, &tokens, progress, &e->result, error);
  if (good) print(e, counted_bytes(e, &source, &tokens), now() - start);
  free(tokens.tokens);
  train_reader_close(&e->reader);
  train_source_close(&memory, &source);
  return good;
}

int tigon_cli_eval(int argc, char **argv) {
  static const struct argp argp = {options, parse, "CHECKPOINT", text, NULL, NULL, NULL};
  evaluating e = {.command = argv[0], .token_bytes = 2, .open = {.device = "cpu", .dtype = "f32"}};
  train_error error = {0};
  if (!cli_parse(&argp, argc, argv, &e)) return CLI_OK;
  if (!e.open.folder) cli_mistake(e.command, "no checkpoint given, as in %s tigon-run --data FILE", e.command);
  if (!e.data) cli_mistake(e.command, "--data is not given, must be a text or a .bin of tokens");
  if (run(&e, &error)) return CLI_OK;
  cli_say(e.command, error.text);
  return error.exit_code;
}
