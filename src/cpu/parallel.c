/* The one place where threads start. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/caller_state.h"
#include "cpu/cpu.h"

/* libgomp's workers do not survive fork(): a child that starts a parallel region would wait for them for ever. */
static atomic_bool forked;
static void in_child(void) { atomic_store(&forked, true); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

static void *wait_for_release(void *release) {
  pthread_mutex_lock(release);
  pthread_mutex_unlock(release);
  return NULL;
}

int tigon_cpu_threads_there(int wanted) {
  static atomic_int most = 1;
  if (wanted <= atomic_load(&most)) return wanted;
  pthread_mutex_t release = PTHREAD_MUTEX_INITIALIZER;
  pthread_t *threads = malloc((size_t)wanted * sizeof *threads);
  int there = 1;
  pthread_mutex_lock(&release);
  while (threads && there < wanted && pthread_create(&threads[there], NULL, wait_for_release, &release) == 0) ++there;
  pthread_mutex_unlock(&release);
  for (int i = 1; i < there; ++i) pthread_join(threads[i], NULL);
  free(threads);
  if (there == wanted) atomic_store(&most, wanted);
  return there;
}

typedef struct job {
  int64_t tasks;
  void (*task)(const void *argument, int64_t index);
  const void *argument;
  atomic_llong next;
} job;

static void work(job *j) {
  TIGON_KEEP_CALLER_STATE;
  for (int64_t i; (i = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->tasks;)
    j->task(j->argument, i);
}

static void start(const tigon_queue *queue, int64_t threads, job *j) {
  if (threads > j->tasks) threads = j->tasks;
  if (queue->record) {
    const tigon_launch launch = {.grid = j->tasks, .block = threads > 1 ? threads : 1};
    if (j->tasks > 0) queue->record(queue->record_to, &launch);
    return;
  }
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  if (threads <= 1 || atomic_load(&forked)) {
    work(j);
    return;
  }
#if defined(_OPENMP)
#pragma omp parallel num_threads((int)threads)
#endif
  work(j);
}

void tigon_cpu_parallel(const tigon_queue *queue, int64_t tasks, void (*task)(const void *argument, int64_t index),
                        const void *argument) {
  job j = {.tasks = tasks, .task = task, .argument = argument};
  start(queue, queue->threads, &j);
}

void tigon_cpu_parallel_bytes(const tigon_queue *queue, int64_t tasks, int64_t bytes,
                              void (*task)(const void *argument, int64_t index), const void *argument) {
  job j = {.tasks = tasks, .task = task, .argument = argument};
  const int64_t worth = bytes / TIGON_CPU_THREAD_BYTES;
  start(queue, worth < queue->threads ? worth : queue->threads, &j);
}
