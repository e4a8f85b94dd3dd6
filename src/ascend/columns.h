/* Work on rows with vectors of columns on Ascend: columns.c has the launches of a call. */
#ifndef TIGON_ASCEND_COLUMNS_H
#define TIGON_ASCEND_COLUMNS_H

#include "ascend/ascend.h"

/* `kernel` is called "<op>_<entry>" in the device's file of kernels. */
tigon_status ascend_columns(tigon_queue *queue, const tigon_columns_problem *p, const char *op, const char *entry,
                            const char *name, tigon_sim_kernel *kernel);
/* Backward's workspace. A plan's slabs of three vectors are the two of the call's, and the number's words. */
int64_t ascend_columns_bytes(tigon_queue *queue, const tigon_columns_problem *p, const char *op);

#endif
