/* A GEMM library that is found at run time. */
#ifndef TIGON_CPU_GEMM_FOUND_H
#define TIGON_CPU_GEMM_FOUND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Is it there? load() looks for it and says so in *found. It looks again where it failed, because memory or threads may have run out. */
static inline bool tigon_gemm_found(atomic_bool *found, pthread_mutex_t *lock, void (*load)(void)) {
  if (!*found) {
    pthread_mutex_lock(lock);
    if (!*found) load();
    pthread_mutex_unlock(lock);
  }
  return *found;
}

#endif
