/* A folder that the tests of one program share. It goes when they are done. */
#ifndef FOLDER_H
#define FOLDER_H

#include <stdio.h>
#include <stdlib.h>

static char folder[] = "/tmp/tigon-train-XXXXXX";

static int setup(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : 1;
}

static int teardown(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

/* folder/name, which the fourth call after this one overwrites. */
static inline char *path_of(const char *name) {
  static char paths[4][256];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

#endif
