/* What the launchers of divergence and topk_divergence have in common. */
#ifndef TIGON_OPENCL_DIVERGENCE_H
#define TIGON_OPENCL_DIVERGENCE_H

#include "opencl/kernel/divergence.h"
#include "opencl/loss.h"
#include "problem/loss.h"

/* Their numbers; input_is: what a kernel takes the input for. */
divergence_numbers opencl_divergence_numbers(const tigon_divergence_problem *p, tigon_distribution input_is);
/* COUNT and REDUCE, those of `parts`. */
tigon_status opencl_divergence_totals(tigon_queue *queue, const tigon_divergence_problem *p, int parts);

#endif
