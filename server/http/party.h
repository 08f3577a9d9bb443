// Whose a request is, for limits that keep room for others: one party is an API key, or, for requests without
// a key, an address.
#pragma once

#include <string>
#include <string_view>

namespace quire::server {

// `key`: the name of the request's key, or empty. `peer`: as Connection::peer() has it. Ports do not count,
// and the addresses of one IPv6 network (/64), which one machine may use all of, are one party, as all
// connections of one local user are.
std::string PartyOf(std::string_view key, std::string_view peer);

// Whether the peer runs on this machine, and is not a proxy's client.
bool IsOfThisMachine(std::string_view peer);

class Exchange;
std::string PartyOf(Exchange& exchange);

}  // namespace quire::server
