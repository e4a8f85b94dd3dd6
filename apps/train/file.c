#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool train_path_join(const char *folder, const char *name, char path[TRAIN_PATH], train_error *error) {
  if ((size_t)snprintf(path, TRAIN_PATH, "%s/%s", folder, name) < TRAIN_PATH) return true;
  return train_fail(error, TRAIN_EXIT_TROUBLE, "the path of %s is longer than %d bytes", name, TRAIN_PATH - 1);
}

static bool cannot_write(const char *path, int number, train_error *error) {
  return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot write %s: %s", path, strerror(number));
}

bool train_file_create(const char *path, train_file *file, train_error *error) {
  if ((size_t)snprintf(file->path, TRAIN_PATH, "%s", path) >= TRAIN_PATH ||
      (size_t)snprintf(file->temporary, TRAIN_PATH, "%s.tmp", path) >= TRAIN_PATH)
    return cannot_write(path, ENAMETOOLONG, error);
  file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file->descriptor >= 0) return true;
  return cannot_write(path, errno, error);
}

void train_file_discard(train_file *file) {
  close(file->descriptor);
  unlink(file->temporary);
}

bool train_file_append(train_file *file, const void *bytes, size_t count, train_error *error) {
  const char *from = bytes;
  while (count > 0) {
    const ssize_t put = write(file->descriptor, from, count);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const int number = put < 0 ? errno : ENOSPC;
      train_file_discard(file);
      return cannot_write(file->path, number, error);
    }
    from += put;
    count -= (size_t)put;
  }
  return true;
}

bool train_file_finish(train_file *file, train_error *error) {
  int number = fsync(file->descriptor) != 0 && errno != EINVAL ? errno : 0; /* EINVAL: a pipe has nothing to flush */
  if (close(file->descriptor) != 0 && number == 0) number = errno;
  if (number == 0) return true;
  unlink(file->temporary);
  return cannot_write(file->path, number, error);
}

bool train_file_commit(const char *path, train_error *error) {
  char temporary[TRAIN_PATH + 8];
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  if (rename(temporary, path) == 0) return true;
  return cannot_write(path, errno, error);
}

bool train_file_replace(const char *path, const void *bytes, size_t count, train_error *error) {
  train_file file;
  return train_file_create(path, &file, error) && train_file_append(&file, bytes, count, error) &&
         train_file_finish(&file, error) && train_file_commit(path, error);
}

bool train_folder_create(const char *path, train_error *error) {
  char part[TRAIN_PATH];
  struct stat status;
  if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part) return cannot_write(path, ENAMETOOLONG, error);
  for (char *slash = part + 1; *slash; ++slash) {
    if (*slash != '/') continue;
    *slash = 0;
    if (mkdir(part, 0777) != 0 && errno != EEXIST) return cannot_write(path, errno, error);
    *slash = '/';
  }
  if (mkdir(part, 0777) != 0 && errno != EEXIST) return cannot_write(path, errno, error);
  if (stat(path, &status) != 0) return cannot_write(path, errno, error);
  if (S_ISDIR(status.st_mode)) return true;
  return cannot_write(path, ENOTDIR, error);
}

bool train_folder_same(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void train_folder_flush(const char *path) {
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

bool train_folder_reserve(const char *path, int64_t bytes, train_error *error) {
  char name[TRAIN_PATH];
  if (!train_path_join(path, "space.tmp", name, error)) return false;
  const int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return cannot_write(name, errno, error);
  const int number = posix_fallocate(file, 0, (off_t)bytes);
  close(file);
  unlink(name);
  if (number == 0 || number == EOPNOTSUPP || number == EINVAL) return true;
  return train_fail(error, TRAIN_EXIT_TROUBLE, "no room in %s for a checkpoint (%.1f MiB): %s", path,
                    (double)bytes / 1048576.0, strerror(number));
}
