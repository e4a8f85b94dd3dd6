# The command line. It links the archive because `check`, `plan` and `bench` walk the oracle, the planner and every
# variant; `tigon check` is the runner of tests/check. The trainer is a library of its own, so that tests can link it,
# and sees the public headers only.
find_package(PkgConfig REQUIRED)
pkg_check_modules(jansson IMPORTED_TARGET jansson)
if(NOT jansson_FOUND)
  message(FATAL_ERROR "tigon: jansson not found; run `tools/setup build` or configure with -DTIGON_CLI=OFF")
endif()
# The tokenizer's regular expressions and normal forms of Unicode.
pkg_check_modules(tokenizer IMPORTED_TARGET libpcre2-8 libutf8proc)
if(NOT tokenizer_FOUND)
  message(FATAL_ERROR "tigon: PCRE2 or utf8proc not found; run `tools/setup build` or configure with -DTIGON_CLI=OFF")
endif()

file(GLOB cli_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/apps/cli/*.c")
file(GLOB check_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/check/*.c")
file(GLOB train_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/apps/train/*.c")

add_library(tigon_plot STATIC "${PROJECT_SOURCE_DIR}/apps/plot/plot.c")
target_include_directories(tigon_plot PUBLIC "${PROJECT_SOURCE_DIR}/apps")
target_link_libraries(tigon_plot PRIVATE tigon_library_flags m)

set(train "")
if(train_sources)
  set(train tigon_train)
  add_library(tigon_train STATIC ${train_sources})
  target_include_directories(tigon_train PRIVATE "${PROJECT_SOURCE_DIR}/include" INTERFACE "${PROJECT_SOURCE_DIR}/apps/train")
  target_link_libraries(tigon_train PUBLIC tigon_plot PRIVATE tigon_library_flags PkgConfig::jansson
    PkgConfig::tokenizer m)

  if(NOT TIGON_MPI STREQUAL "OFF")
    find_package(MPI COMPONENTS C)
    if(TIGON_MPI STREQUAL "ON" AND NOT MPI_C_FOUND)
      message(FATAL_ERROR "tigon: TIGON_MPI is ON and no MPI was found")
    endif()
  endif()
  if(MPI_C_FOUND AND NOT TIGON_MPI STREQUAL "OFF")
    target_compile_definitions(tigon_train PRIVATE TIGON_WITH_MPI=1)
    target_link_libraries(tigon_train PRIVATE MPI::MPI_C)
    message(STATUS "tigon: the trainer uses MPI, so the command line needs ${MPI_C_LIBRARIES} at run time "
      "and starts some milliseconds later (-DTIGON_MPI=OFF builds it without)")
  else()
    message(STATUS "tigon: the trainer is built without MPI")
  endif()
endif()

if(cli_sources)
  add_library(tigon_check OBJECT ${check_sources})
  target_include_directories(tigon_check PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(tigon_check PUBLIC tigon_internal PRIVATE tigon_library_flags)

  # Apart from main(), for a test that links it.
  list(FILTER cli_sources EXCLUDE REGEX "/main\\.c$")
  add_library(tigon_commands OBJECT ${cli_sources})
  target_include_directories(tigon_commands PUBLIC "${PROJECT_SOURCE_DIR}/apps")
  target_link_libraries(tigon_commands PUBLIC
    tigon_check ${train} tigon_plot tigon_internal tigon_library_flags PkgConfig::jansson)

  add_executable(tigon_cli "${PROJECT_SOURCE_DIR}/apps/cli/main.c")
  # Hidden, main.c's argp_program_version would not replace libc's.
  set_target_properties(tigon_cli PROPERTIES OUTPUT_NAME tigon C_VISIBILITY_PRESET default)
  target_link_libraries(tigon_cli PRIVATE tigon_commands tigon_check)

  # What bench/peers_cpu.py loads: the cases, with the library in it.
  add_library(tigon_bench SHARED "${PROJECT_SOURCE_DIR}/bench/runner.c")
  target_link_libraries(tigon_bench PRIVATE tigon_check tigon_internal tigon_library_flags)
endif()
