/* Files that are replaced as a whole or not at all: written beside their name, flushed to the disk, then renamed. */
#ifndef TRAIN_FILE_H
#define TRAIN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum { TRAIN_PATH = 4096 };

typedef struct train_file {
  int descriptor;
  char path[TRAIN_PATH];      /* the name it will have */
  char temporary[TRAIN_PATH]; /* path + ".tmp" */
} train_file;

/* "folder/name"; fails when that is too long. */
bool train_path_join(const char *folder, const char *name, char path[TRAIN_PATH], train_error *error);

/* Creates path.tmp, replacing an older one. */
bool train_file_create(const char *path, train_file *file, train_error *error);
/* A failed append removes the temporary file; nothing must follow it but an error. */
bool train_file_append(train_file *file, const void *bytes, size_t count, train_error *error);
/* Flushes to the disk and closes; a failure removes the temporary file. */
bool train_file_finish(train_file *file, train_error *error);
/* Gives up: closes and removes. */
void train_file_discard(train_file *file);
/* Renames path.tmp to path. */
bool train_file_commit(const char *path, train_error *error);

/* create, append, finish and commit in one. */
bool train_file_replace(const char *path, const void *bytes, size_t count, train_error *error);

/* Makes a folder and those above it. */
bool train_folder_create(const char *path, train_error *error);
/* Whether both names are of one folder, which exists. */
bool train_folder_same(const char *a, const char *b);
/* Makes the names in a folder last through a power cut. */
void train_folder_flush(const char *path);
/* Whether `bytes` more can be written to the folder: reserves them in a file and removes it. */
bool train_folder_reserve(const char *path, int64_t bytes, train_error *error);

#endif
