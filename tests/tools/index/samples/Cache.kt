package org.example

interface Loader {
    fun load(key: String): String
}

enum class Policy {
    OLDEST,
    NEWEST
}

class Cache(val loader: Loader, private var limit: Int) {
    private val entries = HashMap<String, String>()

    fun get(key: String): String {
        return entries.getOrPut(key) { loader.load(key) }
    }

    fun size(): Int = entries.size
}

object Registry {
    val all = ArrayList<Cache>()

    fun register(cache: Cache) {
        all.add(cache)
    }
}

const val VERSION = "1.0"

fun main() {
    println("cache")
}
