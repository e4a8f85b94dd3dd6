/* UTF-8: is it, and how does it look on a terminal. */
#ifndef TRAIN_UTF8_H
#define TRAIN_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that begins here, 1..4; 0 when the bytes are no character (cut short, overlong, surrogate). */
size_t train_utf8_length(const uint8_t *bytes, size_t count);

/* Is all of it text: UTF-8 without NUL and the other control characters that no text has? *wrong is where it first is not. */
bool train_utf8_is_text(const uint8_t *bytes, size_t count, size_t *wrong);

/* Copies text so that it is valid and harmless to show: what is no character, and control characters but newline and tab,
 * become U+FFFD. `to` has room for 3 * count + 1; it ends in 0. */
void train_utf8_show(const uint8_t *bytes, size_t count, char *to);

#endif
