# The version is written once, in include/tigon/base.h, because users compare it at compile time.
set(header "${CMAKE_CURRENT_SOURCE_DIR}/include/tigon/base.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")

set(TIGON_VERSION "")
foreach(part MAJOR MINOR PATCH)
  file(STRINGS "${header}" line REGEX "^#define[ \t]+TIGON_VERSION_${part}[ \t]+[0-9]+")
  if(NOT line MATCHES "TIGON_VERSION_${part}[ \t]+([0-9]+)")
    message(FATAL_ERROR "include/tigon/base.h: no '#define TIGON_VERSION_${part} <number>'")
  endif()
  list(APPEND TIGON_VERSION "${CMAKE_MATCH_1}")
endforeach()
list(JOIN TIGON_VERSION "." TIGON_VERSION)
