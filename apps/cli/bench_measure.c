/* How a row is timed. */
#include <stdlib.h>
#include <sys/resource.h>

#include "ascend/plan/plans.h"
#include "bench.h"
#include "core/context.h"

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_quantile(bench_samples *s, double part) {
  if (s->count == 0) return 0;
  qsort(s->value, (size_t)s->count, sizeof *s->value, by_value);
  const double at = part * (s->count - 1);
  const int below = (int)at, above = below + 1 < s->count ? below + 1 : below;
  return s->value[below] + (at - below) * (s->value[above] - s->value[below]);
}

void bench_set_times(bench_row *row, bench_samples *times) {
  row->median = bench_quantile(times, 0.5);
  row->q20 = bench_quantile(times, 0.2);
  row->q80 = bench_quantile(times, 0.8);
}

/* Bytes of which the shared cache holds a quarter at most. */
static double beyond_caches(void) {
  tigon_machine machine;
  const double least = 64e6, most = BENCH_PROBE_BYTES;
  tigon_machine_read(&machine);
  const double bytes = 4 * (double)machine.l3_bytes;
  return machine.l3_bytes <= 0 || bytes > most ? most : bytes < least ? least : bytes;
}

/* The machine's ceilings: medians over the rows that are larger than the caches (with --hot: over all that have one), or a
 * probe of its own without one. */
void bench_find_ceilings(bench_result *result, tigon_context *context, int repeats) {
  static bench_samples copy, read;
  const double large = result->hot ? 0 : 64e6; /* bytes */
  for (int i = 0; i < result->count && copy.count < BENCH_MOST_REPEATS; ++i)
    if (result->rows[i].copy_gbps > 0 && result->rows[i].bytes_min >= large) {
      copy.value[copy.count++] = result->rows[i].copy_gbps;
      read.value[read.count++] = result->rows[i].read_gbps;
    }
  bench_probe probe;
  if (copy.count == 0 && context->queue.backend->stream)
    bench_probe_device(context, repeats, &copy, &read);
  else if (copy.count == 0 && bench_probe_open(&probe, beyond_caches(), result->threads, false)) {
    while (copy.count < repeats) {
      copy.value[copy.count++] = bench_probe_copy(&probe, 0);
      read.value[read.count++] = bench_probe_read(&probe, 0);
    }
    bench_probe_close(&probe);
  }
  result->copy_gbps = bench_quantile(&copy, 0.5);
  result->read_gbps = bench_quantile(&read, 0.5);
}

/* How often the system took a core from a thread of this process so far, for another program's sake. */
static long switches(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* Seconds a call, over `calls` of them, or fewer when a busy machine makes them take much longer than expected. */
static double time_calls(const bench_data *data, bench_mode mode, int64_t calls) {
  enum { LOOK_EVERY = 64 };
  tigon_queue *queue = &data->memory.context->queue;
  const bool by_device = queue->backend->time && queue->backend->time(queue, true, NULL) == TIGON_OK;
  const double start = bench_now(), limit = 0.05;
  double seconds = 0;
  int64_t done = 0;
  do {
    (void)bench_call(data, mode);
  } while (++done < calls && (done % LOOK_EVERY != 0 || bench_now() - start < limit));
  if (by_device && queue->backend->time(queue, false, &seconds) == TIGON_OK) return seconds / (double)done;
  (void)tigon_context_sync(data->memory.context);
  return (bench_now() - start) / (double)done;
}

double bench_model_gbps(const tigon_context *context) { return context->device->memory_gbps; }

/* On a simulator the model's time of one call stands for all samples, and its memory's rate for the probes'. */
static void read_model(const bench_data *data, bench_mode mode, bench_row *row) {
  tigon_context *context = data->memory.context;
  const tigon_queue *queue = &context->queue;
  queue->backend->model(queue, NULL);
  ascend_plans *plans = queue->backend->plans(queue);
  plans->predicted = 0;
  (void)bench_call(data, mode);
  queue->backend->model(queue, &row->counted);
  row->predicted = plans->predicted;
  row->median = row->q20 = row->q80 = row->counted.seconds;
  row->copy_gbps = row->read_gbps = bench_model_gbps(context);
  row->floor_fraction = row->bytes_min * 1e-9 / row->copy_gbps / row->median;
}

void bench_measure(const bench_data *data, bench_mode mode, const bench_timing *timing, bench_row *row) {
  if (data->memory.context->queue.backend->model) {
    read_model(data, mode, row);
    return;
  }
  if (data->memory.context->queue.backend->stream) {
    bench_measure_on_device(data, mode, timing, row);
    return;
  }
  static bench_samples times, copies, reads;
  const double sample_seconds = timing->sample_seconds;
  const double budget = 1; /* seconds of samples, from the BENCH_PATIENCE-th on */
  bench_probe probe = {0};
  const tigon_context *context = data->memory.context;
  const bool host = context->queue.backend->host_memory;
  const bool floor = host && row->flops == 0 && !timing->overhead &&
                     (timing->hot || row->bytes_min >= BENCH_LEAST_FLOOR) &&
                     bench_probe_open(&probe, row->bytes_min, data->memory.context->queue.threads, timing->hot);
  int disturbed = 0;
  times.count = copies.count = reads.count = 0;
  double once = time_calls(data, mode, 1);
  for (int i = 0; i < 3 && once < 100 * sample_seconds; ++i) {
    const double again = time_calls(data, mode, 1);
    once = again < once ? again : once;
  }
  const int64_t calls = once < sample_seconds ? (int64_t)(sample_seconds / (once + 1e-9)) + 1 : 1;
  const double start = bench_now();
  while (times.count < timing->repeats && (times.count < BENCH_PATIENCE || bench_now() - start < budget)) {
    if (floor) copies.value[copies.count++] = bench_probe_copy(&probe, sample_seconds);
    if (floor && (data->mode[mode].reads_only || reads.count < BENCH_PATIENCE))
      reads.value[reads.count++] = bench_probe_read(&probe, sample_seconds);
    const long before = switches();
    times.value[times.count++] = time_calls(data, mode, calls);
    disturbed += switches() != before;
  }
  bench_probe_close(&probe);
  row->disturbed = (double)disturbed / times.count;
  bench_set_times(row, &times);
  /* Without `stream` a device's memory is not probed: its rate is the one that the planner counts on. */
  const double described = host || row->flops > 0 ? 0 : bench_model_gbps(context);
  row->copy_gbps = host ? bench_quantile(&copies, 0.5) : described;
  row->read_gbps = host ? bench_quantile(&reads, 0.5) : described;
  const double ceiling = data->mode[mode].reads_only ? row->read_gbps : row->copy_gbps;
  if (ceiling > 0) row->floor_fraction = row->bytes_min * 1e-9 / ceiling / row->median;
}
