/* rms_norm's cases serve fused_add_rms_norm too. */
#ifndef TIGON_CHECK_NORM_H
#define TIGON_CHECK_NORM_H

#include "check/check.h"

enum { CHECK_NORM_OPTIONS = 12 };

void check_norm_fwd(check *k, bool fused);
void check_norm_bwd(check *k, bool fused);

#endif
