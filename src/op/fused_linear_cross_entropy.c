/* The front of the composite, and how it lays out the workspace. Chunks of tokens go through linear, cross_entropy and
 * linear's gradients, one after the other (fused_linear_cross_entropy_run.c).
 *
 * dweight is summed in f32. A 16-bit one is rounded once, so that its product takes all tokens at a time, or sums that lie
 * somewhere else. What the workspace has room for decides, in this order:
 * 1. All tokens are one chunk.
 * 2. The dlogits of all tokens are parked in the memory of dweight itself, where nothing lies yet, in panels of the
 *    vocabulary. dweight is then made from the last panel to the first: a panel's dlogits lie where the panel before it
 *    will be written, the first one's in the workspace.
 * 3. The sums lie in the workspace.
 * 4. The sums of one panel at a time do. Its logits are made again for all tokens, from the log-sum-exp, and the entropy,
 *    that a first pass over the tokens has left. With up to four times as many tokens as columns of hidden, the last classes are
 *    parked all the same, as many as find room in dweight. Only the others are made again.
 *
 * A loss of log-probabilities (head_middle) lies between a chunk's statistics and its gradient. Where a gradient depends on
 * a whole sequence or pair, chunks end where these do, and one that is too long for a chunk has its logits made twice.
 * With a teacher (head_distil) a chunk has the teacher's logits, too, and divergence takes cross_entropy's place. One of which
 * lists are known has none, and topk_divergence does. */
#include "op/fused_linear_cross_entropy.h"

typedef tigon_fused_linear_cross_entropy_args arguments;

/* ---- workspace ---- */

enum { LEAST_CHUNK = 128, GOOD_CHUNK = 2048, GOOD_CHUNK_OF_HOST = 1024 /* rows */, MOST_FOLDS = 4 };
enum { PARKED_PANELS = 8, PARKED_COLUMNS = 2048 /* at least so many panels, of at most so many */ };
enum {
  GOOD_LIMIT = 511 << 20,  /* bytes of a chunk of groups, or with a teacher's logits */
  GROUP_LIMIT = 1023 << 20 /* the same of one group, on a device */
};

static bool is_short(const gradient *g) { return g->dtype == TIGON_F16 || g->dtype == TIGON_BF16; }

static void cut_middle(fused *f, const arguments *a, char *workspace, size_t *used) {
  const head_middle *middle = f->more.middle;
  const size_t bytes = (size_t)f->rows * sizeof(float);
  f->loss.lse = tigon_cut(workspace, used, bytes); /* such a head has no out.lse */
  if (middle->entropy && !tigon_present(&a->out.entropy)) f->loss.entropy = tigon_cut(workspace, used, bytes);
  f->loss.dloss = f->dlogprob = tigon_cut(workspace, used, bytes);
  if (middle->dentropy) f->loss.dentropy = f->dentropy = tigon_cut(workspace, used, bytes);
  if (middle->dentropy) f->loss.entropy_scale = -f->loss.grad_scale;
  if (middle->scratch) f->scratch = tigon_cut(workspace, used, middle->scratch);
}

/* What does not depend on the chunks; returns its bytes. */
static size_t cut_fixed(fused *f, const arguments *a, char *workspace) {
  size_t used = 0;
  const head_middle *middle = f->more.middle;
  tigon_cut_loss(&f->loss, &a->out, true, workspace, &used);
  if (middle) cut_middle(f, a, workspace, &used);
  if (f->more.distil) tigon_distil_cut(f, is_short(&f->dweight), workspace, &used);
  if (!middle && !f->more.distil && is_short(&f->dweight) && !tigon_present(&a->out.lse))
    f->loss.lse = tigon_cut(workspace, &used, (size_t)f->rows * sizeof(float));
  if (is_short(&f->dweight) && tigon_present(&a->dentropy) && !tigon_present(&a->out.entropy))
    f->loss.entropy = tigon_cut(workspace, &used, (size_t)f->rows * sizeof(float));
  if (is_short(&f->dbias)) f->dbias.sums = tigon_cut(workspace, &used, (size_t)f->vocab * sizeof(float));
  return used;
}

/* A host puts the hidden of both sides of pairs together; a device does so in dhidden's memory. */
static bool gathers_pairs(const fused *f) { return f->more.middle && f->more.middle->of_pairs && f->skips; }

/* Bytes of one row of a chunk with `cols` columns of logits. */
static size_t row_bytes(const fused *f, int64_t cols, bool gathers) {
  const size_t size = tigon_dtype_size(f->dtype), wide = tigon_dtype_size(f->loss.dtype) + (size_t)f->beside;
  const size_t bytes = (size_t)cols * wide + (gathers ? (size_t)f->gathered_width * size : 0);
  return bytes ? bytes : 1;
}

/* Bytes of the logits of `rows` rows on lines, and of all that a chunk has of them. */
static size_t logits_bytes(const fused *f, int64_t rows, int64_t cols) {
  return lines((size_t)rows * (size_t)cols * tigon_dtype_size(f->loss.dtype));
}
static size_t chunk_bytes(const fused *f, int64_t rows, int64_t cols) {
  return logits_bytes(f, rows, cols) + lines((size_t)rows * (size_t)cols * (size_t)f->beside);
}

/* Rows of a chunk that fit into `bytes`. One row alone needs no gathering. */
static int64_t rows_that_fit(const fused *f, int64_t cols, size_t bytes) {
  const bool gathers = f->kept < f->rows || gathers_pairs(f);
  if (bytes < 2 * LINE) return 0;
  const size_t rows = (bytes - 2 * LINE) / row_bytes(f, cols, gathers);
  if (rows == 0) return chunk_bytes(f, 1, cols) <= bytes;
  return (int64_t)(rows < (size_t)f->kept ? rows : (size_t)f->kept);
}

/* The smallest chunk that takes all rows in as many steps as `most` does. */
static int64_t even(int64_t rows, int64_t most) {
  if (rows == 0 || most == 0) return most;
  const int64_t steps = (rows - 1) / most + 1;
  return (rows - 1) / steps + 1;
}

/* The same in whole lines, where one fits and one step does not do: a GEMM is slow on others. */
static int64_t whole_lines(int64_t extent, int64_t most) {
  if (most >= extent) return extent;
  const int64_t lined = most / LINE * LINE;
  return lined ? (even(extent, lined) + LINE - 1) / LINE * LINE : even(extent, most);
}

static size_t sums_bytes(const fused *f, int64_t panel) {
  return lines((size_t)panel * (size_t)f->width * sizeof(float));
}

/* Rows of dweight whose room the dlogits of one class take, for all tokens. */
static int64_t folds_of(const fused *f) { return (f->rows + f->width - 1) / f->width; }

/* Is there room in dweight for dlogits of all tokens, of all classes or of some, and nothing else? A matrix without columns has
 * the pitch 1. */
static bool can_park(const fused *f, int64_t most_folds) {
  const gradient *g = &f->dweight;
  return is_short(g) && !g->accumulate && g->pitch == f->width && !f->in_place && folds_of(f) <= most_folds &&
         f->kept == f->rows && f->context->queue.backend->copy_rows;
}

static size_t park_bytes(const fused *f, int64_t cols) {
  return lines((size_t)f->rows * (size_t)cols * tigon_dtype_size(f->dtype));
}

/* Columns of a parked panel: enough for a product to fill a GPU. */
static int64_t parked_columns(const fused *f) {
  const int64_t share = (f->vocab + PARKED_PANELS - 1) / PARKED_PANELS;
  return whole_lines(f->vocab, share < PARKED_COLUMNS ? share : PARKED_COLUMNS);
}

/* Bytes beyond the fixed ones with which any call works, and with which it works well. */
static size_t least_bytes(const fused *f) {
  const size_t row = lines(row_bytes(f, f->vocab, false)) + 2 * LINE;
  const size_t panel = is_short(&f->dweight) ? sums_bytes(f, 1) + 3 * LINE : 0;
  return row > panel ? row : panel;
}
/* Rows of a good chunk: with groups, of as many whole ones, and of one at least where that is not too large. */
static int64_t good_chunk(const fused *f, size_t row) {
  const int64_t chunk = f->skips ? GOOD_CHUNK_OF_HOST : GOOD_CHUNK;
  if (!f->more.middle && !f->more.distil) return chunk;
  const int64_t most = (int64_t)(GOOD_LIMIT / row);
  const int64_t item =
      in_groups(f) && f->rows > 0 ? f->more.middle->of->length * (f->more.middle->of_pairs ? 2 : 1) : 0;
  const int64_t rows = item > chunk ? item : item > 0 ? chunk / item * item : chunk;
  if (rows <= most) return rows;
  if (!f->skips && item > 0 && item <= GROUP_LIMIT / (int64_t)row) return item > most ? item : most / item * item;
  return most < 1 ? 1 : most < chunk ? most : chunk;
}

static size_t good_bytes(const fused *f) {
  const size_t row = row_bytes(f, f->vocab, f->skips), all = (size_t)f->rows * row;
  const int64_t chunk = good_chunk(f, row);
  if (f->rows <= chunk) return all + 3 * LINE;
  /* Labels that are not known here may keep the host from parking. */
  const bool parks = can_park(f, 1) && !f->skips;
  const size_t beside = parks ? park_bytes(f, parked_columns(f)) : is_short(&f->dweight) ? sums_bytes(f, f->vocab) : 0;
  const size_t chunked = (size_t)chunk * row + beside;
  return (all < chunked ? all : chunked) + 3 * LINE;
}

/* Chunks of rows with `cols` logits in `bytes` of the workspace. */
static chunk_space space_in(const fused *f, int64_t cols, char *workspace, size_t bytes) {
  const int64_t fit = rows_that_fit(f, cols, bytes);
  const int64_t chunk = in_groups(f) ? fit : f->skips ? even(f->kept, fit) : whole_lines(f->kept, fit);
  return (chunk_space){chunk, workspace, workspace + logits_bytes(f, chunk, cols),
                       workspace + chunk_bytes(f, chunk, cols)};
}

/* Parks the dlogits of all classes, the first panel's in the workspace. With more folds than one those of the last classes are, as many as
 * dweight has room for, and all of the workspace is the chunk's. */
static bool park(fused *f, char *workspace, size_t bytes, int64_t most_folds) {
  if (!can_park(f, most_folds)) return false;
  const int64_t folds = folds_of(f), good = parked_columns(f);
  const int64_t fit = (int64_t)(bytes / 2 / ((size_t)f->rows * tigon_dtype_size(f->dtype)));
  const int64_t cols = folds > 1 || fit >= good ? good : whole_lines(f->vocab, fit);
  const size_t first = folds > 1 ? 0 : park_bytes(f, cols);
  const chunk_space space = space_in(f, f->vocab, workspace + first, bytes - first);
  if (cols == 0 || space.rows == 0) return false;
  /* Before the last panel dweight has room for as many. */
  const int64_t last = (f->vocab - 1) / cols * cols, before = last / cols / folds;
  if (folds > 1 && before == 0) return false;
  f->park_folds = folds;
  f->park_cols = cols;
  f->park_begin = last - (folds > 1 ? before - 1 : before) * cols;
  f->park = folds > 1 ? NULL : workspace;
  f->whole = space;
  return true;
}

/* Where panels of all rows are as wide as those with sums: they need none. */
static bool sum_at_once(fused *f, char *workspace, size_t bytes) {
  const int64_t row = (int64_t)(bytes / row_bytes(f, 1, false)), most = f->kept ? row / f->kept : 0;
  const int64_t cols = whole_lines(f->panels_end, most);
  const chunk_space space = space_in(f, cols, workspace, bytes);
  if (cols < f->panel || space.rows < f->kept) return false;
  f->dweight.sums = NULL;
  f->panel = cols;
  f->part = space;
  return true;
}

/* Lays out the chunks, and decides where dweight is summed. */
static void schedule(fused *f, char *workspace, size_t bytes) {
  f->whole = space_in(f, f->vocab, workspace, bytes);
  f->panels_end = f->vocab;
  if (!f->dweight.out || !is_short(&f->dweight) || f->whole.rows >= f->kept || park(f, workspace, bytes, 1)) return;
  f->dweight.sums = (float *)(void *)workspace;
  const size_t all = sums_bytes(f, f->vocab);
  const chunk_space left = bytes > all ? space_in(f, f->vocab, workspace + all, bytes - all) : (chunk_space){0};
  if (left.rows >= LEAST_CHUNK) {
    f->whole = left;
    return;
  }
  if (park(f, workspace, bytes, MOST_FOLDS)) f->panels_end = f->park_begin;
  /* Half of the memory for the sums; least_bytes() has seen to it that one column's sums and one logit fit. */
  const size_t column = (size_t)f->width * sizeof(float), logit = row_bytes(f, 1, false), end = (size_t)f->panels_end;
  const size_t most = (bytes - 4 * LINE) / 2 / (column > logit ? column : logit);
  f->panel = whole_lines(f->panels_end, (int64_t)(most < 1 ? 1 : most < end ? most : end));
  if (sum_at_once(f, workspace, bytes)) return;
  const size_t sums = sums_bytes(f, f->panel);
  f->part = space_in(f, f->panel, workspace + sums, bytes - sums);
}

/* ---- the front ---- */

#define A tigon_fused_linear_cross_entropy_args
static const tigon_field fields[] = {
    HEAD_TENSORS,
    MAY(dloss, "?1", F32, DENSE),
    MAY(dentropy, "@", F32, DENSE),
    HEAD_GRADIENTS,
    LOSS_TENSORS,
    LOSS_OUTPUTS,
    LOSS_NUMBERS,
    FLAG(accumulate_dweight),
    FLAG(logits_in_f32),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(fused_linear_cross_entropy, fwd, fields);
DESCRIBE(fused_linear_cross_entropy, bwd, fields);

/* Backward has no outputs of the loss. */
static tigon_status check_absent(tigon_context *context, const tigon_cross_entropy_outputs *out) {
  const char *names[] = {"loss", "token_loss", "lse", "z_loss", "entropy", "argmax", "correct"};
  const tigon_tensor *each[] = {&out->loss,    &out->token_loss, &out->lse,    &out->z_loss,
                                &out->entropy, &out->argmax,     &out->correct};
  for (int i = 0; i < TIGON_COUNT(each); ++i)
    if (tigon_present(each[i])) return tigon_refuse(context, "out.%s is there, must be absent", names[i]);
  return TIGON_OK;
}

/* All slots must be there before the first of them writes anything. */
static tigon_status check_slots(const fused *f) {
  TIGON_TRY(TIGON_REQUIRE_SLOT(f->context, linear_fwd, f->dtype));
  if (f->more.distil) TIGON_TRY(tigon_distil_check_slots(f));
  TIGON_TRY(TIGON_REQUIRE_SLOT(f->context, cross_entropy_fwd, f->loss.dtype));
  if (f->dweight.out || f->dbias.out || f->dhidden) TIGON_TRY(TIGON_REQUIRE_SLOT(f->context, linear_bwd, f->dtype));
  const bool again = f->panel || f->more.knows || f->more.middle;
  return again && !f->more.distil ? TIGON_REQUIRE_SLOT(f->context, cross_entropy_bwd, f->loss.dtype) : TIGON_OK;
}

static tigon_status prepare(tigon_context *context, const arguments *a, bool forward, const head_more *more, fused *f) {
  *f = (fused){
      .context = context,
      .more = *more,
      .in_place = a->dhidden.data && a->dhidden.data == a->hidden.data,
      .width = tigon_last_extent(&a->hidden),
      .vocab = a->weight.shape[0],
      .dtype = a->hidden.dtype,
      .product = {.k = tigon_last_extent(&a->hidden),
                  .dtype = a->hidden.dtype,
                  .b_dtype = a->bias.dtype,
                  .y_dtype = a->logits_in_f32 ? TIGON_F32 : a->hidden.dtype,
                  .x = a->hidden.data,
                  .w = a->weight.data,
                  .b = a->bias.data,
                  .w_pitch = a->weight.strides[0]},
      .dhidden = a->dhidden.data,
      .dweight = {.out = a->dweight.data,
                  .dtype = a->dweight.dtype,
                  .pitch = a->dweight.strides[0],
                  .accumulate = a->accumulate_dweight != 0},
      .dbias = {.out = a->dbias.data, .dtype = a->dbias.dtype, .accumulate = a->accumulate_dweight != 0},
      .skips = context->queue.backend->host_memory,
  };
  TIGON_TRY(
      TIGON_COLLAPSE_PITCHES(context, &f->rows, {&a->hidden, &f->product.x_pitch}, {&a->dhidden, &f->dhidden_pitch}));
  const tigon_loss_args loss = {LOSS_ARGS(hidden), .forward = forward, .vocab = f->vocab, .out = &a->out};
  TIGON_TRY(tigon_check_loss(context, &loss, &f->loss));
  const int64_t most = INT64_MAX / 64;
  if (more->middle && (f->rows > most || more->middle->of->count > most))
    return tigon_refuse(context, "hidden has more rows than a workspace can hold numbers for");
  f->loss.dtype = f->product.y_dtype;
  f->loss.panel_begin = more->vocab_begin;
  f->loss.vocab = more->vocab;
  f->loss.stats = more->stats;
  if (more->stats) f->loss.entropy_scale = 1; /* w is made, which an entropy of all shards needs */
  f->rounds = f->loss.dtype != f->dtype &&
              (tigon_present(&a->dhidden) || tigon_present(&a->dweight) || tigon_present(&a->dbias));
  const bool teacher = more->distil && !more->distil->lists;
  f->beside = (int64_t)(teacher ? tigon_dtype_size(f->loss.dtype) : f->rounds ? tigon_dtype_size(f->dtype) : 0);
  f->gathered_width = more->distil && more->distil->teacher.k > f->width ? more->distil->teacher.k : f->width;
  f->loss.negated = more->negated;
  if (more->negated) f->loss.grad_scale = -f->loss.grad_scale; /* and not the entropy's */
  f->loss.space = (tigon_row_space){f->rows, 1, f->rows};
  f->kept = f->rows;
  f->group = (row_group){{0, f->rows}, {f->rows, f->rows}, f->rows};
  return TIGON_OK;
}

tigon_status tigon_head_call(tigon_context *context, const arguments *a, bool forward, const head_more *more,
                             size_t *least, size_t *good) {
  fused f;
  TIGON_TRY(prepare(context, a, forward, more, &f));
  const size_t fixed = cut_fixed(&f, a, a->workspace), minimum = fixed + least_bytes(&f);
  if (least) {
    const size_t recommended = fixed + good_bytes(&f);
    *least = minimum;
    if (good) *good = recommended > minimum ? recommended : minimum;
    return TIGON_OK;
  }
  TIGON_TRY(tigon_check_workspace(context, a->workspace, a->workspace_bytes, minimum));
  const int64_t classes = tigon_cross_entropy_vocab(&f.loss);
  const tigon_dim limit = more->vocab ? (tigon_dim){"vocab", NULL, 0} : (tigon_dim){"weight", &a->weight, 0};
  if (tigon_present(&a->labels))
    TIGON_TRY(tigon_check_below(context, "labels", &a->labels, classes, limit, f.loss.has_ignore_index,
                                f.loss.ignore_index, &a->out.error, &f.loss.error_flag));
  if (more->middle) TIGON_TRY(tigon_check_segments(context, more->middle->of));
  if (f.rows == 0 || f.width == 0) f.dhidden = NULL;
  if (f.vocab == 0 || f.width == 0) f.dweight.out = NULL;
  if (f.vocab == 0) f.dbias.out = NULL;
  for (int64_t r = 0; f.skips && r < f.rows; ++r) f.kept -= !counts(&f, r);
  schedule(&f, (char *)a->workspace + fixed, a->workspace_bytes - fixed);
  TIGON_TRY(check_slots(&f));
  return tigon_head_run(&f);
}

tigon_status tigon_fused_linear_cross_entropy_fwd(tigon_context *context, const arguments *args) {
  TIGON_KEEP_CALLER_STATE;
  arguments a;
  TIGON_TRY(tigon_check_entry(context, &tigon_fused_linear_cross_entropy_fwd_schema, args, &a, false));
  return tigon_head_call(context, &a, true, &(head_more){0}, NULL, NULL);
}

tigon_status tigon_fused_linear_cross_entropy_bwd(tigon_context *context, const arguments *args) {
  TIGON_KEEP_CALLER_STATE;
  arguments a;
  TIGON_TRY(tigon_check_entry(context, &tigon_fused_linear_cross_entropy_bwd_schema, args, &a, false));
  TIGON_TRY(check_absent(context, &a.out));
  return tigon_head_call(context, &a, false, &(head_more){0}, NULL, NULL);
}

/* One query for both directions: `out` is looked at as forward does where it is there. */
tigon_status tigon_fused_linear_cross_entropy_workspace(tigon_context *context, const arguments *args, size_t *minimum,
                                                        size_t *recommended) {
  TIGON_KEEP_CALLER_STATE;
  arguments a;
  size_t least;
  TIGON_TRY(tigon_check_entry(context, &tigon_fused_linear_cross_entropy_fwd_schema, args, &a, true));
  a.workspace = NULL;
  const bool forward = tigon_present(&a.out.loss) || tigon_present(&a.out.token_loss);
  TIGON_TRY(tigon_head_call(context, &a, forward, &(head_more){0}, &least, recommended));
  if (minimum) *minimum = least;
  return TIGON_OK;
}
