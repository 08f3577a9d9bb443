#!/usr/bin/env python3
"""Plants operations that generated clients cannot use, and expects check_openapi to name each of them."""
import copy
import unittest

import check_openapi

GOOD = {"info": {"license": {"name": "Apache-2.0"}}, "paths": {
    "/": {"get": {"operationId": "getRoot", "security": [], "responses": {"200": {}, "default": {}}}},
    "/api/chat": {"post": {"operationId": "postApiChat", "requestBody": {},
                           "responses": {"200": {}, "400": {}, "401": {}, "413": {}, "default": {}}}}}}


class CheckOpenApi(unittest.TestCase):
    def test_clean(self):
        self.assertEqual([], check_openapi.check(GOOD))

    def test_license(self):
        self.assertEqual(["info.license is missing"], check_openapi.check(GOOD | {"info": {}}))

    def test_ids(self):
        bad = copy.deepcopy(GOOD)
        bad["paths"]["/api/chat"]["post"]["operationId"] = "chat"
        self.assertEqual(["POST /api/chat: operationId is chat, expected postApiChat"], check_openapi.check(bad))
        self.assertEqual("getUiIndex", check_openapi.id_of("get", "/ui/"))
        self.assertEqual("getQuireCacheModel", check_openapi.id_of("get", "/quire/cache/{model}"))

    def test_errors(self):
        for code in ("400", "401", "413", "default"):
            bad = copy.deepcopy(GOOD)
            del bad["paths"]["/api/chat"]["post"]["responses"][code]
            self.assertEqual([f"POST /api/chat: the reply {code} is missing"], check_openapi.check(bad))


if __name__ == "__main__":
    unittest.main()
