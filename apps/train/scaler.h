/* Dynamic loss scaling for f16, as PyTorch's GradScaler does it (Micikevicius et al. 2018, arXiv:1710.03740). Gradients are
 * taken of the loss times a scale, so that small ones are no zeros in f16. A step whose gradients overflow is skipped. */
#ifndef TRAIN_SCALER_H
#define TRAIN_SCALER_H

#include <stdint.h>

#include "options.h"

#define TRAIN_MOST_SCALE 0x1p64 /* far beyond what f16 gradients bear, so that the scale stays finite */

typedef struct train_scaler {
  bool on;            /* off: the scale is 1, and gradients that are not finite are an error */
  double scale;       /* >= 1 */
  int64_t good_steps; /* since the scale last changed */
  int64_t skipped;    /* steps of the whole run that changed nothing */
} train_scaler;

/* The scaler of a run that begins. */
train_scaler train_scaler_start(const train_options *options);

/* Goes on from a checkpoint's scaler; a given --init-scale, and a checkpoint of another dtype, start the scale afresh. */
void train_scaler_resume(train_scaler *scaler, const train_scaler *saved, const train_options *options);

/* After a step with finite gradients. */
void train_scaler_grow(train_scaler *scaler, const train_options *options);

/* After a step without: a lower scale. False where the scale is 1 already, so that no lower one helps. */
bool train_scaler_back_off(train_scaler *scaler, const train_options *options);

#endif
