/* Built programs, and what self-checks found, on disk: TIGON_OPENCL_CACHE, else $XDG_CACHE_HOME/tigon/opencl or ~/.cache/tigon/opencl. An empty TIGON_OPENCL_CACHE, or
 * no home, means none. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opencl/program.h"

typedef struct head {
  char magic[8];
  uint64_t key, bytes, sum; /* sum: the hash of the binary */
} head;
static const char magic[8] = "tigoncl";

static uint64_t hash_bytes(uint64_t from, const unsigned char *data, size_t bytes) { /* FNV-1a */
  for (size_t i = 0; i < bytes; ++i) from = (from ^ data[i]) * 0x100000001b3u;
  return from;
}

/* The end of the text counts, so that "ab", "c" is not "a", "bc". */
uint64_t opencl_hash(uint64_t from, const char *text) {
  if (from == 0) from = 0xcbf29ce484222325u;
  return hash_bytes(from, (const unsigned char *)text, strlen(text) + 1);
}

bool opencl_cache_folder(char path[OPENCL_PATH]) {
  const char *own = getenv("TIGON_OPENCL_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = 0;
  if (own)
    length = snprintf(path, OPENCL_PATH, "%s", own);
  else if (cache && *cache)
    length = snprintf(path, OPENCL_PATH, "%s/tigon/opencl", cache);
  else if (home && *home)
    length = snprintf(path, OPENCL_PATH, "%s/.cache/tigon/opencl", home);
  return length > 0 && length < OPENCL_PATH;
}

static bool place(char path[OPENCL_PATH], const char *name, uint64_t key) {
  char in[OPENCL_PATH];
  if (!opencl_cache_folder(in)) return false;
  const int length = snprintf(path, OPENCL_PATH, "%s/%s-%016llx", in, name, (unsigned long long)key);
  return length > 0 && length < OPENCL_PATH;
}

/* A binary runs in this process or on its device, so nobody else may have written it. */
static bool is_private(int file) {
  struct stat is;
  return fstat(file, &is) == 0 && is.st_uid == geteuid() && !(is.st_mode & (S_IWGRP | S_IWOTH));
}

/* The folder of a path, opened; -1: there is none, or others may write there. */
static int open_folder(const char *path) {
  char in[OPENCL_PATH];
  snprintf(in, sizeof in, "%.*s", (int)(strrchr(path, '/') - path), path);
  const int opened = open(in, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0 || is_private(opened)) return opened;
  close(opened);
  return -1;
}

/* Relative to the folder that was looked at: its path may lead elsewhere by now. */
static FILE *open_private(const char *path) {
  const int in = open_folder(path);
  if (in < 0) return NULL;
  const int file = openat(in, strrchr(path, '/') + 1, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  close(in);
  FILE *opened = file >= 0 && is_private(file) ? fdopen(file, "rb") : NULL;
  if (!opened && file >= 0) close(file);
  return opened;
}

/* Reads to the end of `bytes`; NULL: what is there is shorter, or its sum is another. */
static unsigned char *read_body(FILE *file, const head *h) {
  struct stat is;
  if (fstat(fileno(file), &is) != 0 || h->bytes == 0 || (uint64_t)is.st_size != sizeof *h + h->bytes) return NULL;
  unsigned char *binary = malloc((size_t)h->bytes);
  if (!binary) return NULL;
  if (fread(binary, 1, (size_t)h->bytes, file) == h->bytes && hash_bytes(h->key, binary, (size_t)h->bytes) == h->sum)
    return binary;
  free(binary);
  return NULL;
}

unsigned char *opencl_cache_read(const char *name, uint64_t key, size_t *bytes) {
  char path[OPENCL_PATH];
  head h;
  FILE *file = place(path, name, key) ? open_private(path) : NULL;
  if (!file) return NULL;
  unsigned char *binary = NULL;
  if (fread(&h, sizeof h, 1, file) == 1 && memcmp(h.magic, magic, sizeof magic) == 0 && h.key == key)
    binary = read_body(file, &h);
  fclose(file);
  *bytes = binary ? (size_t)h.bytes : 0;
  return binary;
}

/* The folder and those above it. */
static void make_folders(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0700);
    *slash = '/';
  }
}

/* Under another name first, so that nobody reads a part of it. */
void opencl_cache_write(const char *name, uint64_t key, const unsigned char *binary, size_t bytes) {
  char path[OPENCL_PATH], own[OPENCL_PATH + 32];
  if (!place(path, name, key)) return;
  make_folders(path);
  const int in = open_folder(path);
  if (in < 0) return;
  close(in);
  snprintf(own, sizeof own, "%s.XXXXXX", path);
  const int number = mkstemp(own);
  FILE *file = number >= 0 ? fdopen(number, "wb") : NULL;
  if (!file) {
    if (number >= 0) close(number), unlink(own);
    return;
  }
  head h = {.key = key, .bytes = bytes, .sum = hash_bytes(key, binary, bytes)};
  memcpy(h.magic, magic, sizeof magic);
  const bool written = fwrite(&h, sizeof h, 1, file) == 1 && fwrite(binary, 1, bytes, file) == bytes;
  if (fclose(file) != 0 || !written || rename(own, path) != 0) unlink(own);
}
