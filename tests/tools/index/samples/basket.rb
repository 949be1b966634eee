# Things to buy.
module Shop
  VERSION = "1.2"

  class Error < StandardError
  end

  # One line of a basket.
  class Item
    attr_reader :name
    attr_accessor :count

    def initialize(name, count)
      @name = name
      @count = count
    end

    def total(price)
      price * count
    end

    def empty?
      count.zero?
    end
  end

  class Basket
    include Enumerable

    def self.of(*items)
      new.tap { |basket| items.each { |item| basket << item } }
    end

    def <<(item)
      items << item
      self
    end

    def each(&block)
      items.each(&block)
    end

    private

    def items
      @items ||= []
    end
  end
end

def checkout(basket)
  basket.each { |item| puts "item: #{item.name}" }
end
