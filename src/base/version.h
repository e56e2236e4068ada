/* version.h - the version, in one place. */
#ifndef SK_BASE_VERSION_H
#define SK_BASE_VERSION_H

#define SK_VERSION "0.1.0"

#endif
