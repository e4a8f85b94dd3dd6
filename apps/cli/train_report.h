/* How `tigon train` tells of a run: lines and a bar on stderr, results on stdout, or one JSON object a line. */
#ifndef TIGON_CLI_TRAIN_REPORT_H
#define TIGON_CLI_TRAIN_REPORT_H

#include "../train/run.h"

typedef struct train_report {
  bool json, quiet, compare;
  int64_t steps;
} train_report;

/* `report` must outlive the observer. */
train_observer train_report_observer(train_report *report);

#endif
