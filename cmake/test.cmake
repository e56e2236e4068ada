# Tests: each test/ROOM/FILE.c is a program, each FILE.sh a script, each .cu a program on a GPU; the
# test is called ROOM_FILE, those of test/cuda FILE_cuda.
#
# Exit code 0 passes, 77 skips (the last line printed says why), anything else fails.
# Tests run in the root of the repository; scripts find the program in $SKEIN and the
# compiler with its flags in $SKEIN_CC.  Tests run beside others: ranks often wait, and one test
# alone leaves cores idle.  Those that look at a clock closely run alone (by name, below); in builds
# that are many times slower, all that start ranks or threads of their own do.
# oracle_* need an installed peer such as PyTorch, slurm_* its daemons: these have their own
# label.  quick: what ./check --quick runs, seconds of all rooms.
set(alone "^(comm_(shm|wait)|fault_.*|cli_doctor)$|_ranks$")
if(SKEIN_TEST_SCALE GREATER 1)
  set(alone "^(api|comm|mpi|run|train|cli|fault|cmd|layouts?)(_|$)|_ranks$")
endif()
string(CONCAT quick
  "^((base|tensor|graph|program|plan|parts|schedule|optim|data|op|fuzz)_.*"
  "|device_cpu|comm_(alias|choose|prove.*|stream|swap)|layout_(cases|moe|skip|text|words)"
  "|run_(aside|fuse|team)|train_(checkpoint|codec|hf|rate|scale)|cli_(api|conf|errors)|cmd_(idle|plan)|api_(graph|run))$")

set(environment
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1"
    "SKEIN_CC=${CMAKE_C_COMPILER} -std=c11 -D_GNU_SOURCE ${skein_c_flags}")
if(TARGET skein_program)
  list(APPEND environment "SKEIN=$<TARGET_FILE:skein_program>")
endif()

function(skein_test_name file to)
  cmake_path(GET file STEM LAST_ONLY stem)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET folder FILENAME room)
  if(room STREQUAL "cuda")
    set(${to} ${stem}_cuda PARENT_SCOPE)
  else()
    set(${to} ${room}_${stem} PARENT_SCOPE)
  endif()
endfunction()

function(skein_test name) # name, then the command
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  math(EXPR limit "360 * ${SKEIN_TEST_SCALE}")
  if(name MATCHES "${alone}")
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  elseif(name MATCHES "^(oracle|slurm)_")
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE LABELS oracle)
    math(EXPR limit "600 * ${SKEIN_TEST_SCALE}")
  endif()
  if(name MATCHES "${quick}")
    set_tests_properties(${name} PROPERTIES LABELS quick)
  endif()
  if(name MATCHES "^page_") # some commands are run with SKEIN_LONG only
    math(EXPR limit "300 * ${SKEIN_TEST_SCALE}")
  endif()
  if(name MATCHES "_random$") # thousands of pairs with SKEIN_LONG
    math(EXPR limit "1200 * ${SKEIN_TEST_SCALE}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} SKIP_RETURN_CODE 77
                                          ENVIRONMENT "${environment}")
endfunction()

# What tests share: test/lib.
file(GLOB shared CONFIGURE_DEPENDS test/lib/*.c)
add_library(skein_testlib STATIC ${shared})
target_include_directories(skein_testlib PUBLIC test)
target_link_libraries(skein_testlib PUBLIC skein PRIVATE skein_flags)

# The program once more, with a GPU that is none: scripts find it in $SKEIN_FAKED.
if(TARGET skein_program)
  add_executable(skein_fake src/cli/main.c)
  target_link_options(skein_fake PRIVATE -Wl,-u,sk_fake_cli)
  target_link_libraries(skein_fake PRIVATE skein_testlib skein_flags)
  list(APPEND environment "SKEIN_FAKED=$<TARGET_FILE:skein_fake>")
endif()

function(skein_test_program name file library) # and the program's arguments
  add_executable(test_${name} ${file})
  set_target_properties(test_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  target_include_directories(test_${name} PRIVATE test)
  target_link_libraries(test_${name} PRIVATE ${library} skein_flags)
  skein_test(${name} test_${name} ${ARGN})
endfunction()

file(GLOB tests CONFIGURE_DEPENDS test/*/*.c)
list(FILTER tests EXCLUDE REGEX "/test/(fuzz|lib)/")
foreach(file ${tests})
  skein_test_name(${file} name)
  if(name MATCHES "64$") # in float64
    skein_test_program(${name} ${file} skein64)
  else()
    skein_test_program(${name} ${file} skein_testlib)
  endif()
  if(name STREQUAL "parts_op")
    skein_test_program(parts_op64 ${file} skein64)
  endif()
endforeach()

# Each page is a test, which runs its commands; some scripts are among them.  Not in slow builds, which
# would say the same.
if(SKEIN_TEST_SCALE EQUAL 1)
  set(by_pages "^(doc_commands|doc_op|example_layouts)$")
  file(GLOB pages CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} *.md doc/*.md bench/*.md example/*.md example/*/*.md)
  list(FILTER pages EXCLUDE REGEX "CHANGELOG")
  foreach(page ${pages})
    string(REGEX REPLACE "^doc/|[.]md$" "" name ${page})
    string(REPLACE "/" "_" name ${name})
    skein_test(page_${name} bash test/doc/commands.sh ${page})
  endforeach()
else()
  set(by_pages "^doc_commands$")
endif()

file(GLOB scripts CONFIGURE_DEPENDS test/*/*.sh)
list(FILTER scripts EXCLUDE REGEX "/test/lib/")
foreach(file ${scripts})
  skein_test_name(${file} name)
  if(NOT name MATCHES "${by_pages}")
    skein_test(${name} bash ${file})
  endif()
endforeach()

if(TARGET skein_cuda)
  file(GLOB cuda_tests CONFIGURE_DEPENDS test/cuda/*.cu)
  foreach(file ${cuda_tests})
    skein_test_name(${file} name)
    skein_test_program(${name} ${file} "skein_cuda;skein_testlib")
  endforeach()
  skein_test_program(op_canonical_cuda ${CMAKE_SOURCE_DIR}/test/op/canonical.c
                     "skein_cuda;skein_testlib" cuda)
  # The ops in float64 beside those in float: one object of which only sk_op64_find is seen.
  set(ops64 ${CMAKE_BINARY_DIR}/ops64.o)
  add_custom_command(OUTPUT ${ops64}
    COMMAND ${CMAKE_LINKER} -r -o ${ops64} $<TARGET_OBJECTS:skein64>
    COMMAND ${CMAKE_OBJCOPY} --redefine-sym sk_op_find=sk_op64_find ${ops64}
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=sk_op64_find ${ops64}
    DEPENDS skein64 $<TARGET_OBJECTS:skein64> COMMAND_EXPAND_LISTS VERBATIM)
  target_sources(test_parts_cuda PRIVATE ${ops64})
  set_source_files_properties(${ops64} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
endif()

# Fuzzers of parsers (test/lib/fuzz.h), from the inputs in test/corpus/NAME.  With libFuzzer 20
# seconds each, and what it finds stays in the build; otherwise the inputs and mutations of them.
add_library(skein_replay OBJECT test/lib/fuzz/replay.c)
target_link_libraries(skein_replay PRIVATE skein_testlib skein_flags)
file(GLOB fuzzers CONFIGURE_DEPENDS test/fuzz/*.c)
foreach(file ${fuzzers})
  skein_test_name(${file} name)
  string(REGEX REPLACE "^fuzz_" "${CMAKE_SOURCE_DIR}/test/corpus/" corpus ${name})
  if(SKEIN_FUZZ)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/corpus/${name})
    skein_test_program(${name} ${file} skein_testlib -max_total_time=20 -timeout=10
                       -malloc_limit_mb=64 -rss_limit_mb=1024
                       -artifact_prefix=${CMAKE_BINARY_DIR}/${name}.
                       ${CMAKE_BINARY_DIR}/corpus/${name} ${corpus})
    target_link_options(test_${name} PRIVATE -fsanitize=fuzzer)
  else()
    skein_test_program(${name} ${file} skein_testlib ${corpus})
    target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:skein_replay>)
  endif()
endforeach()
