/* A row of topk_divergence in windows of classes: in each `entry` says which entry a class has, the first one. */
#include "topk_terms.cl"

enum { NO_ENTRY = INT_MAX };
#if GROUP == 1
#define ENTRIES int
#define ENTRY_ROOM int entry_room[TOPK_WINDOW];
#define enter(at, j) (*(at) = min(*(at), j))
#else
#define ENTRIES __local int
#define ENTRY_ROOM __local int entry_room[TOPK_WINDOW];
#define enter(at, j) atomic_min(at, j)
#endif

/* A row at work. */
typedef struct work {
  const topk_numbers *k;
  ENTRIES *entry; /* [TOPK_WINDOW] */
  memory input, target, ids, dinput;
  long x, t, id, to;  /* where the row begins */
  long cols, vocab;   /* 0: the row does not count */
  long begin, width;  /* the window's */
} work;

/* Class of entry j; -1: it is out of the vocabulary. */
static inline long class_at(const work *w, long j) {
  const long v = load_int(w->ids, w->id + j, w->k->id_dtype);
  return v >= 0 && v < w->k->vocab ? v : -1;
}
static inline float target_at(const work *w, long j) { return load_one(w->target, w->t + j, w->k->target_dtype); }
/* Class v, before it is anything else. */
static inline float x_at(const work *w, long v) { return load_one(w->input, w->x + v - w->k->of.panel_begin, T); }

static inlined int open_window(work *w, long begin, long last) {
  w->begin = begin;
  w->width = clamp(last - begin, 0L, (long)TOPK_WINDOW);
  room_wait();
  for (int c = (int)row_lane(); c < TOPK_WINDOW; c += GROUP) w->entry[c] = NO_ENTRY;
  room_wait();
  for (long j = row_lane(); j < w->k->k; j += GROUP) {
    const long v = class_at(w, j);
    if (v >= begin && v < begin + w->width) enter(&w->entry[v - begin], (int)j);
  }
  room_wait();
  return 1;
}
/* One window at the least: PoCL 3.1 compiles for minutes where a barrier is under a condition, as in a loop that may not run. */
#define FOR_WINDOWS(w, first, last)                                                        \
  for (long at = (first), more = 1; more; at += TOPK_WINDOW, more = at < (last))           \
    for (int once = open_window(w, at, last); once; once = 0)
/* The work-item's entries that are the first of a class v of the window. */
#define FOR_ENTRIES(w, j, v)                                    \
  for (long j = row_lane(), v; j < (w)->k->k; j += GROUP)       \
    if ((v = class_at(w, j)) >= (w)->begin && v < (w)->begin + (w)->width && (w)->entry[v - (w)->begin] == (int)j)
/* The window's vectors, from its column c on: the lanes that are outside of the support. */
#define FOR_OUTSIDE(w, c, n) \
  for (long c = row_lane() * LANES, n = (w)->width - c; c < (w)->width; c += GROUP * LANES, n = (w)->width - c)
static inline vi outside_at(const work *w, long c, long n) {
  return PASTE(vload, LANES)(0, w->entry + c) == NO_ENTRY && first_lanes(n);
}
