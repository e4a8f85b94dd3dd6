/* tigon tokenize: text into a token file that `tigon train` reads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../train/file.h"
#include "../train/source.h"
#include "cli.h"

static const char text[] =
    "Turn text into a token file, once, for many runs of `tigon train --data FILE.bin'.\n"
    "\n"
    "TEXT is a UTF-8 file, or a folder of them. FILE is a tokenizer.json of Hugging Face with byte-level BPE, as GPT-2, "
    "Llama 3 and Qwen have it, or a folder that holds one. The tokens are those of Python's `tokenizers', without the "
    "special ones that a template puts around a text."
    "\v"
    "Examples:\n"
    "  tigon tokenize --tokenizer gpt2/tokenizer.json notes.txt --out notes.bin\n"
    "  tigon train --data notes.bin --tokenizer gpt2/tokenizer.json\n"
    "  tigon tokenize --tokenizer gpt2 hello.txt           the tokens themselves, in one line\n"
    "\n"
    "The file has llm.c's header: 256 int32, of which the third is the number of tokens. Tokens are uint16, or uint32 "
    "where the vocabulary is above 65536.\n"
    "\n"
    "Exit status: 0 done; 2 the command line is wrong; 3 a file failed.";

enum { KEY_TOKENIZER = 256, KEY_OUT, KEY_JSON };

static const struct argp_option options[] = {
    {"tokenizer", KEY_TOKENIZER, "FILE", 0, "The tokenizer.json", 0},
    {"out", KEY_OUT, "FILE", 0, "The token file; without it the tokens are printed", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object, see docs/cli.md", 0},
    {0}};

typedef struct tokenizing {
  const char *command, *tokenizer, *text, *out;
  bool json;
} tokenizing;

static error_t parse(int key, char *argument, struct argp_state *state) {
  tokenizing *z = state->input;
  switch (key) {
    case KEY_TOKENIZER: z->tokenizer = argument; return 0;
    case KEY_OUT: z->out = argument; return 0;
    case KEY_JSON: z->json = true; return 0;
    case ARGP_KEY_ARG:
      if (z->text) cli_mistake(z->command, "takes one text, but got \"%s\" too", argument);
      z->text = argument;
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static void little_endian(uint8_t *to, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = (uint8_t)(value >> (8 * i));
}

/* llm.c's file: magic 20240520, version 1 of uint16, or magic 20240801, version 7 of uint32. */
static bool write_tokens(const char *path, const train_tokens *tokens, int width, train_error *error) {
  enum { PIECE = 16384, HEADER = 1024 };
  uint8_t piece[4 * PIECE] = {0};
  train_file file;
  if (tokens->count > INT32_MAX)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "the text has %" PRId64 " tokens, must have at most %d for one file",
                      tokens->count, INT32_MAX);
  little_endian(piece, width == 2 ? 20240520 : 20240801, 4);
  little_endian(piece + 4, width == 2 ? 1 : 7, 4);
  little_endian(piece + 8, (uint32_t)tokens->count, 4);
  bool good = train_file_create(path, &file, error) && train_file_append(&file, piece, HEADER, error);
  for (int64_t first = 0; good && first < tokens->count; first += PIECE) {
    const int64_t count = tokens->count - first < PIECE ? tokens->count - first : PIECE;
    for (int64_t i = 0; i < count; ++i) little_endian(piece + i * width, (uint32_t)tokens->tokens[first + i], width);
    good = train_file_append(&file, piece, (size_t)(count * width), error);
  }
  return good && train_file_finish(&file, error) && train_file_commit(path, error);
}

static bool run(const tokenizing *z, train_error *error) {
  train_memory memory = {0};
  train_source source = {0};
  train_tokens tokens = {0};
  train_tokenizer *tokenizer = train_tokenizer_open(z->tokenizer, error);
  bool good = tokenizer && train_source_open_text(&memory, z->text, &source, error);
  if (good && source.note[0]) cli_say(z->command, source.note);
  good = good && train_tokenizer_encode(tokenizer, source.text.data, (size_t)source.count, false, &tokens, error) &&
         (!z->out || write_tokens(z->out, &tokens, train_tokenizer_vocab(tokenizer) > 65536 ? 4 : 2, error));
  if (good && z->json) {
    cli_print_json(json_pack("{s:I, s:I, s:I, s:s?}", "tokens", (json_int_t)tokens.count, "bytes",
                             (json_int_t)source.count, "vocab", (json_int_t)train_tokenizer_vocab(tokenizer), "out",
                             z->out));
  } else if (good && z->out) {
    printf("%s: %" PRId64 " tokens of %" PRId64 " bytes, %.2f bytes a token, vocabulary %" PRId64 "\n", z->out,
           tokens.count, source.count, (double)source.count / (double)(tokens.count ? tokens.count : 1),
           train_tokenizer_vocab(tokenizer));
  } else if (good) {
    for (int64_t i = 0; i < tokens.count; ++i) printf("%s%" PRId32, i ? " " : "", tokens.tokens[i]);
    putchar('\n');
  }
  free(tokens.tokens);
  train_source_close(&memory, &source);
  train_tokenizer_close(tokenizer);
  return good;
}

int tigon_cli_tokenize(int argc, char **argv) {
  static const struct argp argp = {options, parse, "TEXT", text, NULL, NULL, NULL};
  tokenizing z = {.command = argv[0]};
  train_error error = {0};
  if (!cli_parse(&argp, argc, argv, &z)) return CLI_OK;
  if (!z.text) cli_mistake(z.command, "no text given: name a UTF-8 file or a folder of them");
  if (!z.tokenizer) cli_mistake(z.command, "--tokenizer is not given, must be a tokenizer.json");
  if (run(&z, &error)) return CLI_OK;
  cli_say(z.command, error.text);
  return error.exit_code;
}
