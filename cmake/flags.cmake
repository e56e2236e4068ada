# skein_flags: how every C file of the project is compiled and every program linked.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
set(is_x86 FALSE)
if(processor MATCHES "^(x86_64|amd64)$")
  set(is_x86 TRUE)
endif()

# -march: AVX2 and FMA are what the kernels are written for.  An older processor gets
# plain x86-64, because a slow demo is better than an illegal instruction.
set(arch "${SKEIN_ARCH}")
if(arch STREQUAL "auto")
  set(arch "")
  if(is_x86)
    set(arch x86-64-v3)
    if(EXISTS /proc/cpuinfo AND NOT CMAKE_CROSSCOMPILING)
      file(STRINGS /proc/cpuinfo cpu REGEX "^flags" LIMIT_COUNT 1)
      foreach(need avx2 fma bmi2 f16c movbe)
        if(NOT cpu MATCHES " ${need}( |$)")
          set(arch x86-64)
          message(STATUS "this processor lacks ${need}: building for plain x86-64, slower")
          break()
        endif()
      endforeach()
    endif()
  endif()
endif()

# Error reports say src/run/run.c:88, also where ccache gives the compiler relative names.
file(RELATIVE_PATH up "${CMAKE_BINARY_DIR}" "${CMAKE_SOURCE_DIR}")
string(REGEX REPLACE "/$" "" up "${up}")
set(flags
    -ffp-contract=fast -fopenmp-simd -fno-math-errno -fno-trapping-math
    -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes
    "-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=" "-fmacro-prefix-map=${up}/=")
if(arch)
  list(APPEND flags -march=${arch})
endif()

# New compilers find new things to say; only the two that the project is judged by may fail a build.
set(werror "${SKEIN_WERROR}")
if(werror STREQUAL "auto")
  set(werror OFF)
  if(is_x86 AND CMAKE_BUILD_TYPE MATCHES "^(Release|Lint)$"
     AND "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}" MATCHES "^(GNU 12|Clang 14)\\.")
    set(werror ON)
  endif()
endif()
if(werror)
  list(APPEND flags -Werror)
endif()

# Hardening.  Fortify needs an optimiser, and hides what a sanitizer would see.
set(hard_flags -fstack-protector-strong -fstack-clash-protection -fno-semantic-interposition)
if(is_x86)
  list(APPEND hard_flags -fcf-protection)
endif()
if(SKEIN_HARD)
  list(APPEND hard_flags -ftrivial-auto-var-init=pattern)
else()
  list(APPEND hard_flags -ftrivial-auto-var-init=zero)
endif()
foreach(flag ${hard_flags})
  string(MAKE_C_IDENTIFIER "has${flag}" has)
  check_c_compiler_flag(${flag} ${has})
  if(${has})
    list(APPEND flags ${flag})
  endif()
endforeach()
if(NOT SKEIN_SANITIZE AND (SKEIN_HARD OR NOT CMAKE_BUILD_TYPE MATCHES "^(Debug|Lint)$"))
  set(level 3)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12)
    set(level 2)
  endif()
  list(APPEND flags -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level})
endif()

set(link_flags -Wl,-z,relro,-z,now,-z,noexecstack)
if(SKEIN_SANITIZE)
  list(APPEND flags -fsanitize=${SKEIN_SANITIZE} -fno-sanitize-recover=all)
  list(APPEND link_flags -fsanitize=${SKEIN_SANITIZE})
endif()

list(JOIN flags " " skein_c_flags) # for tests that compile something themselves

add_library(skein_flags INTERFACE)
target_compile_definitions(skein_flags INTERFACE _GNU_SOURCE $<$<BOOL:${SKEIN_HARD}>:SK_HARD>)
target_compile_options(skein_flags INTERFACE "$<$<COMPILE_LANGUAGE:C>:${flags}>")
target_link_options(skein_flags INTERFACE ${link_flags})
