#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "source.h"
#include "utf8.h"

/* ---- the list of files ---- */

typedef struct file_list {
  char **paths;
  int64_t count, capacity;
} file_list;

static void list_free(file_list *list) {
  for (int64_t i = 0; i < list->count; ++i) free(list->paths[i]);
  free(list->paths);
}

static bool list_add(file_list *list, const char *path, train_error *error) {
  if (list->count == list->capacity) {
    const int64_t capacity = list->capacity ? 2 * list->capacity : 16;
    char **paths = realloc(list->paths, (size_t)capacity * sizeof *paths);
    if (!paths) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of files");
    list->paths = paths;
    list->capacity = capacity;
  }
  list->paths[list->count] = strdup(path);
  if (!list->paths[list->count]) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of files");
  ++list->count;
  return true;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Regular files under `path`; links to folders are not followed, so that a loop of them ends. */
static bool list_folder(file_list *list, const char *path, int depth, train_error *error) {
  char name[4096];
  struct stat status;
  DIR *folder = opendir(path);
  if (!folder) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(errno));
  bool good = true;
  for (struct dirent *entry; good && (entry = readdir(folder));) {
    if (entry->d_name[0] == '.') continue;
    if ((size_t)snprintf(name, sizeof name, "%s/%s", path, entry->d_name) >= sizeof name || lstat(name, &status) != 0)
      continue;
    if (S_ISDIR(status.st_mode) && depth < 64)
      good = list_folder(list, name, depth + 1, error);
    else if (S_ISREG(status.st_mode))
      good = list_add(list, name, error);
  }
  closedir(folder);
  return good;
}

/* ---- their text ---- */

/* Bytes of a regular file; -1 and the sentence when there is none. */
static int64_t file_bytes(const char *path, train_error *error) {
  struct stat status;
  if (stat(path, &status) != 0) {
    train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(errno));
    return -1;
  }
  return (int64_t)status.st_size;
}

/* Reads at most `room` bytes; a byte order mark is dropped. */
static bool read_file(const char *path, uint8_t *to, size_t room, size_t *count, train_error *error) {
  FILE *file = fopen(path, "rbe");
  if (!file) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(errno));
  *count = fread(to, 1, room, file);
  const bool failed = ferror(file);
  fclose(file);
  if (failed) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot read %s: %s", path, strerror(errno));
  if (*count >= 3 && memcmp(to, "\xef\xbb\xbf", 3) == 0) {
    *count -= 3;
    memmove(to, to + 3, *count);
  }
  return true;
}

/* Appends every file to the block; `lone` refuses what is no UTF-8, otherwise it is skipped. Sets *used and *skipped. */
static bool gather(const file_list *list, bool lone, train_block *text, size_t *used, int64_t *skipped,
                   train_error *error) {
  uint8_t *bytes = text->data;
  for (int64_t i = 0; i < list->count; ++i) {
    size_t count = 0, wrong = 0;
    if (!read_file(list->paths[i], bytes + *used, text->bytes - *used - 1, &count, error)) return false;
    if (!train_utf8_is_text(bytes + *used, count, &wrong)) {
      if (lone)
        return train_fail(error, TRAIN_EXIT_TROUBLE,
                          "%s is not UTF-8 text: byte 0x%02x at %zu (a token file's name must end in .bin)",
                          list->paths[i], (unsigned)bytes[*used + wrong], wrong);
      ++*skipped;
      continue;
    }
    *used += count;
    if (!lone && count > 0 && bytes[*used - 1] != '\n') bytes[(*used)++] = '\n';
  }
  return true;
}

/* One segment over the first `used` bytes of source->text. */
static bool finish(train_memory *memory, size_t used, train_source *source, train_error *error) {
  source->segments = calloc(1, sizeof *source->segments);
  if (!source->segments) {
    train_source_close(memory, source);
    return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the text");
  }
  source->segments[0] = (train_segment){.bytes = source->text.data, .file = -1, .count = (int64_t)used, .width = 1};
  source->segment_count = 1;
  source->count = (int64_t)used;
  source->is_text = true;
  return true;
}

bool train_source_open_text(train_memory *memory, const char *path, train_source *source, train_error *error) {
  struct stat status;
  file_list list = {0};
  size_t total = 1, used = 0;
  int64_t skipped = 0;
  *source = (train_source){0};
  if (stat(path, &status) != 0)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(errno));
  const bool lone = !S_ISDIR(status.st_mode);
  if (lone && !S_ISREG(status.st_mode))
    return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is neither a file nor a folder", path);
  bool good = lone ? list_add(&list, path, error) : list_folder(&list, path, 0, error);
  if (good && list.count > 1) qsort(list.paths, (size_t)list.count, sizeof *list.paths, by_text);
  for (int64_t i = 0; good && i < list.count; ++i) {
    const int64_t bytes = file_bytes(list.paths[i], error);
    good = bytes >= 0;
    total += (size_t)bytes + 1;
  }
  good = good && train_host_alloc(memory, total, "the text", &source->text, error) &&
         gather(&list, lone, &source->text, &used, &skipped, error);
  if (good && used == 0) {
    good = lone          ? train_fail(error, TRAIN_EXIT_TROUBLE, "%s is empty", path)
           : skipped > 0 ? train_fail(error, TRAIN_EXIT_TROUBLE, "%s holds no UTF-8 text (%" PRId64 " other file%s)",
                                      path, skipped, skipped == 1 ? "" : "s")
                         : train_fail(error, TRAIN_EXIT_TROUBLE, "%s holds no text", path);
  }
  if (skipped > 0)
    snprintf(source->note, sizeof source->note, "%" PRId64 " %s not UTF-8 text and left out", skipped,
             skipped == 1 ? "file is" : "files are");
  list_free(&list);
  if (!good) {
    train_source_close(memory, source);
    return false;
  }
  return finish(memory, used, source, error);
}

/* ---- the default ---- */

/* Everything that a command prints, in memory of malloc(); NULL when it could not be run or memory ran out. */
static char *output_of(const char *command, size_t *bytes) {
  FILE *pipe = popen(command, "re");
  if (!pipe) return NULL;
  size_t capacity = 1 << 23;
  char *text = malloc(capacity);
  *bytes = 0;
  while (text) {
    const size_t got = fread(text + *bytes, 1, capacity - *bytes, pipe);
    if (got == 0) break;
    *bytes += got;
    if (*bytes < capacity) continue;
    char *larger = realloc(text, capacity *= 2);
    if (!larger) free(text);
    text = larger;
  }
  pclose(pipe);
  return text;
}

/* "Ge1:1 In the beginning ..." without "Ge1:1 ", line by line, in place. Returns the bytes left. */
static size_t strip_verses(char *text, size_t bytes) {
  size_t used = 0;
  for (size_t i = 0; i < bytes;) {
    const char *end = memchr(text + i, '\n', bytes - i);
    const size_t line = end ? (size_t)(end - text) - i + 1 : bytes - i;
    const char *space = memchr(text + i, ' ', line);
    const size_t word = space ? (size_t)(space - (text + i)) : 0, skip = memchr(text + i, ':', word) ? word + 1 : 0;
    memmove(text + used, text + i + skip, line - skip);
    used += line - skip;
    i += line;
  }
  return used;
}

bool train_source_open_bible(train_memory *memory, train_source *source, train_error *error) {
  *source = (train_source){0};
  size_t bytes = 0;
  char *printed = output_of("bible -f Gen1:1-Rev22:21 </dev/null 2>/dev/null", &bytes);
  if (!printed || bytes < 1000000 || memcmp(printed, "Ge1:1 ", 6) != 0) {
    free(printed);
    return train_fail(
        error, TRAIN_EXIT_TROUBLE,
        "the default text is not installed: apt-get install bible-kjv bible-kjv-text, or give --data PATH");
  }
  const bool room = train_host_alloc(memory, bytes, "the text", &source->text, error);
  if (room) memcpy(source->text.data, printed, bytes);
  free(printed);
  if (!room) return false;
  return finish(memory, strip_verses(source->text.data, bytes), source, error);
}
