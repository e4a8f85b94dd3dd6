/* Functions of the C library that fail on purpose: the linker lets faults.c stand in front of them, in every build. */
#ifndef TIGON_TEST_FAULTS_H
#define TIGON_TEST_FAULTS_H

/* From now on the nth call of `function` fails, or with -n each from the nth on. It returns `result`, NULL or MAP_FAILED in place of
 * memory, and errno is `number`. Names: memory (malloc, calloc, realloc), mmap, mprotect, fstat, pread, write, fsync, close,
 * posix_fallocate, clock_gettime. A pread of result 0 finds the end of the file; a clock is `result` seconds ahead. */
void faults_begin(const char *function, long nth, int result, int number);

/* Calls of that function since then; from now on none fails. */
long faults_end(void);

/* A stand-in asks: shall this call of the function fail? */
int faults_now(const char *function);

#endif
