import Foundation

/// Something with a balance.
protocol Holder {
    func balance() -> Int
}

enum Currency {
    case euro
    case krona
}

struct Amount {
    let value: Int
    let currency: Currency

    func doubled() -> Amount {
        return Amount(value: value * 2, currency: currency)
    }
}

class Account: Holder {
    private var entries: [Amount] = []

    func deposit(_ amount: Amount) {
        entries.append(amount)
    }

    func balance() -> Int {
        return entries.reduce(0) { $0 + $1.value }
    }
}

extension Account {
    func isEmpty() -> Bool {
        return entries.isEmpty
    }
}

func transfer(from: Account, to: Account, amount: Amount) {
    to.deposit(amount)
}
