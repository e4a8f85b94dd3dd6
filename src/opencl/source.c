#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "opencl/program.h"

/* The build writes the list, a line TIGON_OPENCL_SOURCE(symbol, name) for each file of src/opencl/kernel, and the files as data. */
#define TIGON_OPENCL_SOURCE(symbol, name) extern const char tigon_opencl_source_##symbol[], tigon_opencl_end_##symbol[];
#include "tigon_opencl_sources.def"
#undef TIGON_OPENCL_SOURCE

static const struct file {
  const char *name, *begin, *end;
} files[] = {
#define TIGON_OPENCL_SOURCE(symbol, name) {name, tigon_opencl_source_##symbol, tigon_opencl_end_##symbol},
#include "tigon_opencl_sources.def"
#undef TIGON_OPENCL_SOURCE
};
enum { FILES = sizeof files / sizeof *files };

typedef struct text {
  char *data;
  size_t used, room;
  bool failed, taken[FILES];
} text;

static void append(text *t, const char *from, size_t bytes) {
  if (t->failed) return;
  if (!t->data || t->used + bytes + 1 > t->room) {
    const size_t room = 2 * (t->used + bytes + 1);
    char *grown = realloc(t->data, room);
    if (!grown) {
      t->failed = true;
      return;
    }
    t->data = grown, t->room = room;
  }
  memcpy(t->data + t->used, from, bytes);
  t->used += bytes;
  t->data[t->used] = 0;
}

static int file_of(const char *name, size_t length) {
  for (int i = 0; i < FILES; ++i)
    if (strlen(files[i].name) == length && memcmp(files[i].name, name, length) == 0) return i;
  return -1;
}

/* `#include "name"` lines become that file: a .cl the first time, a .h each time, as it has guards or wants to be taken again. Those of other
 * files, which are for C, stay. */
static void expand(text *t, int index) {
  static const char include[] = "#include \"";
  if (index < 0) t->failed = true;
  if (t->failed || t->taken[index]) return;
  const struct file *f = &files[index];
  t->taken[index] = strstr(f->name, ".cl") != NULL;
  for (const char *line = f->begin; line < f->end;) {
    const char *newline = memchr(line, '\n', (size_t)(f->end - line)), *next = newline ? newline + 1 : f->end;
    const size_t skip = sizeof include - 1;
    int included = -1;
    if ((size_t)(next - line) > skip && memcmp(line, include, skip) == 0) {
      const char *name = line + skip, *quote = memchr(name, '"', (size_t)(next - name));
      if (quote) included = file_of(name, (size_t)(quote - name));
    }
    if (included >= 0)
      expand(t, included);
    else
      append(t, line, (size_t)(next - line));
    line = next;
  }
}

char *opencl_source(const char *file) {
  text t = {0};
  expand(&t, file_of(file, strlen(file)));
  if (!t.failed) return t.data;
  free(t.data);
  return NULL;
}

uint64_t opencl_sources_hash(void) {
  static atomic_uint_fast64_t known;
  if (!known) {
    uint64_t hash = 0;
    for (int i = 0; i < FILES; ++i) hash = opencl_hash(hash, files[i].begin); /* which a 0 ends */
    known = hash;
  }
  return known;
}
