/* What the mutants of all ops share. */
#include "check/check.h"

tigon_kernels check_real_kernels;

void check_drop_last_row(tigon_row_space *space) {
  if (space->inner != space->rows || space->rows < 2) return;
  space->inner = --space->rows;
}

int64_t check_without_last_part(const tigon_queue *queue, int64_t cols) {
  const int64_t part = 8192;
  return queue->threads == 8 && cols > part ? (cols - 1) / part * part : cols;
}

const check_mutant *check_mutant_at(int entry, int index) {
  const check_mutant *mutants = check_op_at(entry)->mutants;
  return mutants && mutants[index].what ? &mutants[index] : NULL;
}
