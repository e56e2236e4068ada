/* link_price.h - what a list costs on the links of ask->rate; here: neighbours that share a host.
 */
#ifndef SK_COLL_LINK_PRICE_H
#define SK_COLL_LINK_PRICE_H

#include "coll/choose.h"

double sk_link_price(const sk_costs *c, const sk_coll *how, const sk_coll_ask *ask, int here,
                     int64_t bytes);

#endif
