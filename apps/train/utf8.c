#include "utf8.h"

#include <string.h>

size_t train_utf8_length(const uint8_t *b, size_t count) {
  if (count == 0) return 0;
  if (b[0] < 0x80) return 1;
  const size_t length = b[0] >= 0xf0 ? 4 : b[0] >= 0xe0 ? 3 : 2;
  if (b[0] < 0xc2 || b[0] > 0xf4 || count < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((b[i] & 0xc0) != 0x80) return 0;
  if (b[0] == 0xe0 && b[1] < 0xa0) return 0; /* overlong */
  if (b[0] == 0xed && b[1] > 0x9f) return 0; /* surrogates */
  if (b[0] == 0xf0 && b[1] < 0x90) return 0; /* overlong */
  if (b[0] == 0xf4 && b[1] > 0x8f) return 0; /* above U+10FFFF */
  return length;
}

/* Backspace to carriage return, and escape, are in logs and manual pages. */
static bool is_binary(uint8_t byte) { return byte < '\b' || (byte > '\r' && byte < 0x20 && byte != 0x1b); }

bool train_utf8_is_text(const uint8_t *bytes, size_t count, size_t *wrong) {
  for (size_t i = 0; i < count;) {
    const size_t length = train_utf8_length(bytes + i, count - i);
    if (length == 0 || is_binary(bytes[i])) {
      *wrong = i;
      return false;
    }
    i += length;
  }
  return true;
}

void train_utf8_show(const uint8_t *bytes, size_t count, char *to) {
  for (size_t i = 0; i < count;) {
    const size_t length = train_utf8_length(bytes + i, count - i);
    const bool control = bytes[i] == 0x7f || (bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\t') ||
                         (length == 2 && bytes[i] == 0xc2 && bytes[i + 1] < 0xa0);
    const bool show = length > 0 && !control;
    memcpy(to, show ? (const char *)bytes + i : "\xef\xbf\xbd", show ? length : 3);
    to += show ? length : 3;
    i += length ? length : 1;
  }
  *to = 0;
}
