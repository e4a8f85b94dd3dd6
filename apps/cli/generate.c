/* tigon generate: text from a checkpoint, as it comes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../train/reader.h"
#include "../train/sample.h"
#include "../train/stream.h"
#include "../train/utf8.h"
#include "cli.h"
#include "term.h"

static const char text[] =
    "Write text with a trained model, token by token.\n"
    "\n"
    "CHECKPOINT is a folder of `tigon train', or a Llama that transformers saved: config.json, model.safetensors or its "
    "shards in f32, bf16 or f16, and tokenizer.json. Without tokenizer.json a token is a byte. Without --prompt and "
    "--prompt-file the prompt is read from standard input, up to its end and as it is: a newline counts."
    "\v"
    "Examples:\n"
    "  tigon generate tigon-run --prompt 'In the beginning'\n"
    "  tigon generate tigon-run --prompt 'And ' --temperature 0 --stop . --echo\n"
    "  printf 'Thus saith' | tigon generate tigon-run --seed 7 > more.txt\n"
    "  tigon generate SmolLM2-135M --device cuda --dtype bf16 --prompt 'Once upon a time' --top-p 0.9\n"
    "\n"
    "The same seed gives the same text on the same device. A pipe gets the bytes as they are; on a terminal control "
    "characters are replaced. Text that outgrows the model's context goes on from the last half of it.\n"
    "\n"
    "Exit status: 0 done; 1 the model's numbers are not finite; 2 the command line is wrong; 3 a device or a file failed.";

enum {
  KEY_PROMPT = 256,
  KEY_FILE,
  KEY_MOST,
  KEY_TEMPERATURE,
  KEY_TOP_K,
  KEY_TOP_P,
  KEY_STOP,
  KEY_SEED,
  KEY_TOKENIZER,
  KEY_DEVICE,
  KEY_DTYPE,
  KEY_THREADS,
  KEY_ECHO,
  KEY_JSON,
  KEY_QUIET
};

static const struct argp_option options[] = {
    {.doc = "Prompt:"},
    {"prompt", KEY_PROMPT, "TEXT", 0, "What the text begins with", 1},
    {"prompt-file", KEY_FILE, "FILE", 0, "Read the prompt from a UTF-8 file", 1},
    {"echo", KEY_ECHO, NULL, 0, "Print the prompt before the text", 1},
    {.doc = "Text:", .group = 2},
    {"max-tokens", KEY_MOST, "N", 0, "Tokens to write at most; default 256", 2},
    {"stop", KEY_STOP, "TEXT", 0,
     "End before this text; may be given up to 16 times. The model's own end-of-text token always ends", 2},
    {"temperature", KEY_TEMPERATURE, "X", 0, "Below 1 likelier, above 1 wilder, 0 for the likeliest token; default 0.8",
     2},
    {"top-k", KEY_TOP_K, "N", 0, "Draw from the likeliest N tokens, 0 for all; default 40", 2},
    {"top-p", KEY_TOP_P, "X", 0, "Draw from the likeliest tokens that have this probability together; default 1", 2},
    {"seed", KEY_SEED, "N", 0, "Of the draws; default 1", 2},
    {"tokenizer", KEY_TOKENIZER, "FILE", 0, "A tokenizer.json in place of the checkpoint's", 2},
    {.doc = "Output:", .group = 3},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object at the end, see docs/cli.md", 3},
    {"quiet", KEY_QUIET, NULL, 0, "No rates and no notes, only the text", 3},
    {.doc = "Device:", .group = 4},
    {"device", KEY_DEVICE, "DEVICE", 0, "As `tigon devices' lists them; default cpu", 4},
    {"dtype", KEY_DTYPE, "f32|bf16", 0, "What is computed in; default f32", 4},
    {"threads", KEY_THREADS, "N", 0, "CPU threads; default: OMP_NUM_THREADS, else all cores", 4},
    {0}};

enum { MOST_STOPS = 16, LONGEST_PROMPT = 1 << 26 /* bytes */ };

typedef struct generating {
  const char *command, *prompt, *prompt_file;
  train_reader_options open;
  train_reader reader;
  train_sampling how;
  int64_t most;
  const char *stops[MOST_STOPS];
  bool echo, json, quiet, terminal;
  /* while it runs */
  train_stream stream;
  train_error *error;
  train_tokens tokens; /* written */
  uint8_t *shown;      /* the text, for --json */
  size_t shown_bytes, shown_room;
  bool newline, ended; /* the last shown byte is one; an end-of-text token came */
  double start, first; /* seconds: before the prompt, at the first token */
} generating;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double real(const char *command, const char *option, const char *given, double high) {
  char *end;
  const double value = strtod(given, &end);
  if (end == given || *end || !(value >= 0 && value <= high))
    cli_mistake(command, "%s is \"%s\", must be a number from 0 to %g", option, given, high);
  return value;
}

static error_t parse(int key, char *argument, struct argp_state *state) {
  generating *g = state->input;
  switch (key) {
    case KEY_PROMPT: g->prompt = argument; return 0;
    case KEY_FILE: g->prompt_file = argument; return 0;
    case KEY_MOST: g->most = cli_number(g->command, "--max-tokens", argument, 0, 1000000000); return 0;
    case KEY_TEMPERATURE: g->how.temperature = real(g->command, "--temperature", argument, 100); return 0;
    case KEY_TOP_K: g->how.top_k = cli_number(g->command, "--top-k", argument, 0, 1 << 24); return 0;
    case KEY_TOP_P: g->how.top_p = real(g->command, "--top-p", argument, 1); return 0;
    case KEY_STOP:
      if (!*argument) cli_mistake(g->command, "--stop is empty, must be a text");
      if (g->stream.stop_count == MOST_STOPS) cli_mistake(g->command, "--stop is given over %d times", MOST_STOPS);
      g->stops[g->stream.stop_count++] = argument;
      return 0;
    case KEY_SEED: g->how.seed = (uint64_t)cli_number(g->command, "--seed", argument, 0, 9000000000000000); return 0;
    case KEY_TOKENIZER: g->open.tokenizer = argument; return 0;
    case KEY_DEVICE: g->open.device = argument; return 0;
    case KEY_DTYPE:
      if (strcmp(argument, "f32") != 0 && strcmp(argument, "bf16") != 0)
        cli_mistake(g->command, "--dtype is \"%s\", must be f32 or bf16", argument);
      g->open.dtype = argument;
      return 0;
    case KEY_THREADS: g->open.threads = (int)cli_number(g->command, "--threads", argument, 0, 4096); return 0;
    case KEY_ECHO: g->echo = true; return 0;
    case KEY_JSON: g->json = true; return 0;
    case KEY_QUIET: g->quiet = true; return 0;
    case ARGP_KEY_ARG:
      if (g->open.folder) cli_mistake(g->command, "takes one checkpoint, but got \"%s\" too", argument);
      g->open.folder = argument;
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

/* ---- the prompt ---- */

/* All of a file, in memory of malloc(). */
static uint8_t *read_all(const generating *g, FILE *file, const char *name, size_t *bytes) {
  size_t room = 1 << 12, got;
  uint8_t *all = malloc(room);
  *bytes = 0;
  while (all && (got = fread(all + *bytes, 1, room - *bytes, file)) > 0) {
    *bytes += got;
    if (*bytes > LONGEST_PROMPT) cli_trouble(g->command, "%s is longer than %d MiB", name, LONGEST_PROMPT >> 20);
    if (*bytes < room) continue;
    uint8_t *more = realloc(all, room *= 2);
    if (!more) free(all);
    all = more;
  }
  if (!all) cli_trouble(g->command, "no memory for the prompt");
  if (ferror(file)) cli_trouble(g->command, "cannot read %s: %s", name, strerror(errno));
  return all;
}

static uint8_t *read_prompt(const generating *g, size_t *bytes) {
  uint8_t *prompt;
  const char *name = g->prompt ? "the prompt" : g->prompt_file ? g->prompt_file : "standard input";
  size_t at = 0;
  if (g->prompt) {
    *bytes = strlen(g->prompt);
    prompt = (uint8_t *)strdup(g->prompt);
    if (!prompt) cli_trouble(g->command, "no memory for the prompt");
  } else if (g->prompt_file) {
    FILE *file = fopen(name, "rbe");
    if (!file) cli_trouble(g->command, "cannot open %s: %s", name, strerror(errno));
    prompt = read_all(g, file, name, bytes);
    fclose(file);
  } else {
    if (isatty(STDIN_FILENO))
      cli_mistake(g->command, "no prompt: give --prompt TEXT, --prompt-file FILE or standard input");
    prompt = read_all(g, stdin, name, bytes);
  }
  if (!train_utf8_is_text(prompt, *bytes, &at))
    cli_trouble(g->command, "%s is not UTF-8 text: byte 0x%02x at %zu", name, prompt[at], at);
  return prompt;
}

/* ---- the text ---- */

/* A pipe gets the bytes, a terminal what cannot steer it. */
static void print(generating *g, const uint8_t *bytes, size_t count) {
  char safe[3 * 256 + 1];
  for (size_t i = 0; g->terminal && i < count;) {
    size_t part = 0;
    while (i + part < count && part < 252) {
      const size_t length = train_utf8_length(bytes + i + part, count - i - part);
      part += length ? length : 1;
    }
    train_utf8_show(bytes + i, part, safe);
    fputs(safe, stdout);
    i += part;
  }
  if (!g->terminal) fwrite(bytes, 1, count, stdout);
  if (count > 0) g->newline = bytes[count - 1] == '\n';
  fflush(stdout);
}

static void show(void *user, const uint8_t *bytes, size_t count) {
  generating *g = user;
  if (!g->json) {
    print(g, bytes, count);
    return;
  }
  if (g->shown_bytes + count > g->shown_room) {
    g->shown_room = 2 * (g->shown_bytes + count) + 4096;
    g->shown = realloc(g->shown, g->shown_room);
    if (!g->shown) cli_trouble(g->command, "no memory for the text");
  }
  memcpy(g->shown + g->shown_bytes, bytes, count);
  g->shown_bytes += count;
}

static bool take(void *user, int32_t token) {
  generating *g = user;
  size_t bytes = 0;
  if (g->tokens.count == 0) g->first = now();
  if (!train_tokens_add(&g->tokens, token, g->error)) return false;
  for (int i = 0; i < g->reader.end_count; ++i) g->ended = g->ended || token == g->reader.ends[i];
  if (g->ended) return false;
  const uint8_t *spelling = train_tokenizer_text(g->reader.tokenizer, token, &bytes);
  if (!train_stream_add(&g->stream, spelling, bytes, g->error)) return false;
  return !g->stream.stopped && !ferror(stdout);
}

/* ---- the end ---- */

static void print_json(const generating *g, int64_t prompt_count, double prompt_rate, double rate) {
  char *safe = malloc(3 * g->shown_bytes + 1);
  json_t *tokens = json_array();
  if (!safe || !tokens) cli_trouble(g->command, "no memory for the text");
  size_t used = 0; /* only what is no UTF-8 is replaced: JSON escapes the rest */
  for (size_t i = 0; i < g->shown_bytes;) {
    const size_t length = train_utf8_length(g->shown + i, g->shown_bytes - i);
    memcpy(safe + used, length ? (const char *)g->shown + i : "\xef\xbf\xbd", length ? length : 3);
    used += length ? length : 3;
    i += length ? length : 1;
  }
  for (int64_t i = 0; i < g->tokens.count; ++i) json_array_append_new(tokens, json_integer(g->tokens.tokens[i]));
  const char *why = g->ended ? "end" : g->stream.stopped ? "stop" : "max-tokens";
  cli_print_json(json_pack("{s:o, s:o, s:s, s:I, s:f, s:f}", "text", json_stringn(safe, used), "tokens", tokens,
                           "ended", why, "prompt_tokens", (json_int_t)prompt_count, "prompt_tokens_per_s", prompt_rate,
                           "tokens_per_s", rate));
  free(safe);
}

static void finish(generating *g, int64_t prompt_count, double end) {
  char one[TERM_NUMBER], other[TERM_NUMBER];
  const int64_t steps = g->tokens.count - 1, positions = g->reader.model.config.positions;
  const double prompt_rate = g->tokens.count > 0 ? (double)prompt_count / (g->first - g->start) : 0;
  const double rate = steps > 0 ? (double)steps / (end - g->first) : 0;
  if (g->json) print_json(g, prompt_count, prompt_rate, rate);
  if (g->terminal && !g->json && !g->newline) putchar('\n');
  if (g->quiet) return;
  fflush(stdout);
  if (prompt_count + g->tokens.count > positions + 1)
    fprintf(stderr,
            "%s: the text outgrew the model's context of %" PRId64 " tokens and went on from the last half of it\n",
            g->command, positions);
  if (isatty(STDERR_FILENO) && !g->json)
    fprintf(stderr, "%s%" PRId64 " tokens of prompt at %s tokens/s, %" PRId64 " of text at %s tokens/s%s\n",
            term_start(stderr, TERM_DIM), prompt_count, term_digits(one, prompt_rate), g->tokens.count,
            term_digits(other, rate), term_start(stderr, TERM_PLAIN));
}

static bool write_text(generating *g, const train_tokens *prompt, train_error *error) {
  enum { ROWS = 256 /* tokens of the prompt that pass the layers together */ };
  const train_text what = {&g->how, prompt->tokens, prompt->count, g->most, take, g};
  const int64_t wanted = prompt->count + g->most, most = g->reader.model.config.positions;
  const int64_t positions = wanted < most ? wanted : most;
  train_decoder decoder;
  if (!train_decoder_create(&g->reader.memory, &g->reader.model, positions, positions < ROWS ? positions : ROWS,
                            &decoder, error))
    return false;
  g->stream.stops = g->stops;
  g->stream.show = show;
  g->stream.user = g;
  g->error = error;
  g->start = now();
  const bool good = train_write_text(&decoder, &what, error);
  const double end = now();
  train_stream_end(&g->stream);
  if (good && error->exit_code == 0) finish(g, prompt->count, end);
  train_decoder_destroy(&g->reader.memory, &decoder);
  return good && error->exit_code == 0;
}

int tigon_cli_generate(int argc, char **argv) {
  static const struct argp argp = {options, parse, "CHECKPOINT", text, NULL, NULL, NULL};
  generating g = {.command = argv[0],
                  .open = {.device = "cpu", .dtype = "f32"},
                  .how = {.temperature = 0.8, .top_k = 40, .seed = 1},
                  .most = 256};
  train_error error = {0};
  train_tokens prompt = {0};
  size_t bytes = 0;
  if (!cli_parse(&argp, argc, argv, &g)) return CLI_OK;
  if (!g.open.folder) cli_mistake(g.command, "no checkpoint given, as in %s tigon-run --prompt TEXT", g.command);
  if (g.prompt && g.prompt_file) cli_mistake(g.command, "--prompt and --prompt-file are both given");
  g.terminal = isatty(STDOUT_FILENO);
  uint8_t *given = read_prompt(&g, &bytes);
  bool good = train_reader_open(&g.open, &g.reader, &error);
  if (good) {
    good = train_tokenizer_encode(g.reader.tokenizer, given, bytes, true, &prompt, &error);
    if (good && prompt.count == 0)
      good = train_fail(&error, TRAIN_EXIT_USAGE, "the prompt is empty, must have at least one token");
    if (good && prompt.count > g.reader.model.config.positions)
      good = train_fail(&error, TRAIN_EXIT_USAGE,
                        "the prompt has %" PRId64 " tokens, must have at most %" PRId64 ", the model's context",
                        prompt.count, g.reader.model.config.positions);
    if (good && g.echo && !g.json) print(&g, given, bytes);
    good = good && write_text(&g, &prompt, &error);
    train_reader_close(&g.reader);
  }
  free(given);
  free(prompt.tokens);
  free(g.tokens.tokens);
  free(g.shown);
  if (!good) cli_say(g.command, error.text);
  return good ? CLI_OK : error.exit_code;
}
