/* How a row is timed on a device that has a clock and memory of its own: one call between two marks in the stream. Before them
 * the device reads more than its caches hold. So they have nothing of the row, and nothing of an earlier one must still be
 * written. Meanwhile the host enqueues the call, which hides its launch. */
#include "bench.h"
#include "core/context.h"

enum {
  FLUSH_BYTES = 256 << 20, /* more than any device's caches */
  LARGEST = 1 << 30,       /* the largest buffer of the copy */
};

typedef struct probe {
  tigon_context *context;
  size_t bytes; /* bytes of the copy, and half of the read's */
  void *from, *to;
  bool hot;
} probe;

/* What is timed: a call, or one of the probes, which move twice the probe's bytes. */
typedef enum subject { CALL, COPY, READ } subject;

static bool open_probe(probe *p, tigon_context *context, double bytes, bool hot) {
  const double half = bytes / 2 < LARGEST ? bytes / 2 : LARGEST;
  *p = (probe){.context = context, .bytes = ((size_t)half + 15) & ~(size_t)15, .hot = hot};
  const size_t from = 2 * p->bytes > FLUSH_BYTES ? 2 * p->bytes : FLUSH_BYTES;
  /* Memory of a host that nobody wrote is one page of zeros, which a cache holds. */
  return tigon_alloc(context, from, &p->from) == TIGON_OK && tigon_alloc(context, p->bytes, &p->to) == TIGON_OK &&
         tigon_fill(context, p->from, 1, from) == TIGON_OK;
}

static void close_probe(probe *p) {
  tigon_free(p->context, p->from);
  tigon_free(p->context, p->to);
}

static void run(const probe *p, subject what, const bench_data *data, bench_mode mode) {
  tigon_queue *queue = &p->context->queue;
  if (what == CALL) (void)bench_call(data, mode);
  if (what == COPY) (void)queue->backend->stream(queue, p->to, p->from, p->bytes);
  if (what == READ) (void)queue->backend->stream(queue, NULL, p->from, 2 * p->bytes);
}

/* Seconds of one of `calls`; 0 when the device's clock fails. */
static double sample(const probe *p, subject what, const bench_data *data, bench_mode mode, int64_t calls) {
  tigon_queue *queue = &p->context->queue;
  double seconds = 0;
  if (!p->hot) (void)queue->backend->stream(queue, NULL, p->from, FLUSH_BYTES);
  if (queue->backend->time(queue, true, NULL) != TIGON_OK) return 0;
  for (int64_t i = 0; i < calls; ++i) run(p, what, data, mode);
  if (queue->backend->time(queue, false, &seconds) != TIGON_OK) return 0;
  return seconds / (double)calls;
}

static double gbps(const probe *p, double seconds) { return seconds > 0 ? 2 * (double)p->bytes / seconds * 1e-9 : 0; }

/* What a call takes the host: as many of them as the device's queue of launches holds with ease, and as fit in some time. */
static double host_time(const bench_data *data, bench_mode mode, double device_seconds) {
  const double most = 16, patience = 0.02;
  const double fit = device_seconds > 0 ? patience / device_seconds : most;
  const int calls = (int)(fit < 1 ? 1 : fit > most ? most : fit);
  (void)tigon_context_sync(data->memory.context);
  const double start = bench_now();
  for (int i = 0; i < calls; ++i) (void)bench_call(data, mode);
  return (bench_now() - start) / calls;
}

static double find_host_time(const bench_data *data, bench_mode mode, double device_seconds, int repeats,
                             bench_samples *times) {
  times->count = 0;
  while (times->count < repeats) times->value[times->count++] = host_time(data, mode, device_seconds);
  (void)tigon_context_sync(data->memory.context);
  return bench_quantile(times, 0.5);
}

static void measure(const probe *p, const bench_data *data, bench_mode mode, const bench_timing *timing,
                    bench_row *row) {
  static bench_samples times, copies, reads;
  const bool reads_only = data->mode[mode].reads_only;
  const bool floor = row->flops == 0 && (timing->hot || row->bytes_min >= BENCH_LEAST_FLOOR);
  const double budget = 1, once = sample(p, CALL, data, mode, 1); /* seconds */
  const int64_t calls =
      timing->hot && once < timing->sample_seconds ? (int64_t)(timing->sample_seconds / (once + 1e-7)) + 1 : 1;
  const double start = bench_now();
  times.count = copies.count = reads.count = 0;
  while (times.count < timing->repeats && (times.count < BENCH_PATIENCE || bench_now() - start < budget)) {
    if (floor) copies.value[copies.count++] = gbps(p, sample(p, COPY, data, mode, calls));
    if (floor && (reads_only || reads.count < BENCH_PATIENCE))
      reads.value[reads.count++] = gbps(p, sample(p, READ, data, mode, calls));
    times.value[times.count++] = sample(p, CALL, data, mode, calls);
  }
  bench_set_times(row, &times);
  row->copy_gbps = bench_quantile(&copies, 0.5);
  row->read_gbps = bench_quantile(&reads, 0.5);
  const double ceiling = reads_only ? row->read_gbps : row->copy_gbps;
  if (ceiling > 0) row->floor_fraction = row->bytes_min * 1e-9 / ceiling / row->median;
  row->host = find_host_time(data, mode, row->median, BENCH_PATIENCE, &times);
}

void bench_measure_on_device(const bench_data *data, bench_mode mode, const bench_timing *timing, bench_row *row) {
  static bench_samples times;
  probe p;
  if (timing->overhead) {
    (void)find_host_time(data, mode, 0, timing->repeats, &times);
    bench_set_times(row, &times);
    row->host = row->median;
    return;
  }
  if (open_probe(&p, data->memory.context, row->bytes_min, timing->hot)) {
    measure(&p, data, mode, timing, row);
  } else {
    row->outcome = BENCH_SKIPPED;
    snprintf(row->reason, sizeof row->reason, "the device has no memory left for what empties its caches");
  }
  close_probe(&p);
}

void bench_probe_device(tigon_context *context, int repeats, bench_samples *copies, bench_samples *reads) {
  probe p;
  if (open_probe(&p, context, 2.0 * LARGEST, false))
    while (copies->count < repeats) {
      copies->value[copies->count++] = gbps(&p, sample(&p, COPY, NULL, 0, 1));
      reads->value[reads->count++] = gbps(&p, sample(&p, READ, NULL, 0, 1));
    }
  close_probe(&p);
}
