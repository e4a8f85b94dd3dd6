/* Other forms of a call (tests/check/forms.def) as options of `tigon bench` and `tigon plan`. */
#ifndef TIGON_CLI_FORMS_H
#define TIGON_CLI_FORMS_H

#include "check/cases.h"

/* The key of the first form's option; argp's own keys are larger. */
enum { FORM_KEY = 1024, FORMS_TEXT = 192 };

/* Adds the form that an option's key says. False: it says none. */
bool forms_add(unsigned *forms, int key);
/* Ends the program where a form is not among those that `op` has, or with NULL those that are timed have. */
void forms_refuse(const char *command, unsigned forms, unsigned has, const char *op);
/* ", gate, int8" */
char *forms_text(char text[FORMS_TEXT], unsigned forms);

#endif
