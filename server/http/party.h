// Whose a request is, for limits that keep room for others: one party is an API key, or, for requests without
// a key, an address.
#pragma once

#include <cstdint>
#include <string_view>

#include "api/base/fair/party.h"

namespace quire::server {

// `key`: the name of the request's key, or empty. `peer`: as Connection::peer() has it. Ports do not count,
// and the addresses of one IPv6 network (/64), which one machine may use all of, are one party, as all
// connections of one local user are.
fair::PartyId PartyOf(std::string_view key, std::string_view peer, int32_t weight = 1);

// Whether the peer runs on this machine, and is not a proxy's client.
bool IsOfThisMachine(std::string_view peer);

class Exchange;
const fair::PartyId& PartyOf(const Exchange& exchange);

}  // namespace quire::server
